"""The error that braid raises for what a user can mend."""


class Error(RuntimeError):
    """What was wrong, the value and the limit: the line that the program `braid` prints.

    `code` is its kind: 'invalid_argument', 'not_found', 'malformed', 'unsupported',
    'resource_exhausted', 'deadline_exceeded' or 'aborted'.
    """

    code: str

    def __init__(self, message: str, code: str = "invalid_argument") -> None:
        super().__init__(message)
        self.code = code
