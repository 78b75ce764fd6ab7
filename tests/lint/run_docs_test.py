"""tests/docs/run_docs.py on pages whose commands work, fail, print something else, or would escape it."""

import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import tempfile
import unittest
import unittest.mock

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "docs" / "run_docs.py"
spec = importlib.util.spec_from_file_location("run_docs", SCRIPT)
run_docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_docs)


def block(text, info="console"):
    return f"```{info}\n{text}\n```\n"


class RunDocs(unittest.TestCase):
    def run_on(self, page, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "page.md").write_text(page)
            (path / "braid").write_text('#!/bin/sh\n[ "$1" = fail ] && { echo "braid: no" >&2; exit 2; }\necho "took $2 ms"\n')
            (path / "braid").chmod(0o755)
            (path / "model").touch()
            arguments = [path / "page.md", "--braid", path / "braid", *(path / o if o == "model" else o for o in options)]
            output = io.StringIO()
            with unittest.mock.patch.dict(os.environ), contextlib.redirect_stdout(output):
                os.environ.pop("BRAID_TEST_MODEL", None)
                with self.assertRaises(SystemExit) as ended:
                    run_docs.main([str(a) for a in arguments])
        if isinstance(ended.exception.code, str):  # what Python prints before it ends with 1
            return 1, output.getvalue() + ended.exception.code
        return ended.exception.code, output.getvalue()

    def test_a_command_that_works(self):
        status, output = self.run_on(block("$ braid run 12.5\ntook 99 ms"))
        self.assertEqual(status, 0, output)
        self.assertIn("1 commands ran, 0 failed, 0 were not run", output)

    def test_a_command_that_fails(self):
        status, output = self.run_on(block("$ braid fail"))
        self.assertEqual(status, 1)
        self.assertIn("FAILED: page.md:2: braid fail\n  ended with 2, wanted 0\nbraid: no", output)
        self.assertEqual(self.run_on(block("$ braid fail | cat"))[0], 1, "in a pipe, too")
        self.assertEqual(self.run_on(block("$ braid run 1\n$ braid fail\n$ braid run 1"))[0], 1)

    def test_a_program_that_is_not_there(self):
        self.assertEqual(self.run_on(block("$ brade run"))[0], 1)

    def test_a_command_that_should_fail(self):
        self.assertEqual(self.run_on(block("$ braid fail\nbraid: no", "console exit=2"))[0], 0)
        self.assertEqual(self.run_on(block("$ braid run 1", "console exit=2"))[0], 1)

    def test_a_command_that_does_not_end(self):
        with unittest.mock.patch.object(run_docs, "DEADLINE_S", 0.5):
            status, output = self.run_on(block("$ sleep 600 & echo begun; sleep 600"))
        self.assertEqual(status, 1)
        self.assertIn("did not end in 0.5 s\nbegun", output)

    def test_output_that_differs(self):
        for shown in ("took 1 s", "took ms", "took 1 ms\nand more", "took 1 ms extra"):
            self.assertEqual(self.run_on(block(f"$ braid run 1\n{shown}"))[0], 1, shown)
        self.assertEqual(self.run_on(block("$ braid run 1; braid run 2\ntook 1 ms"))[0], 1, "a line that is not shown")
        self.assertEqual(self.run_on(block("$ braid run 1\nsomething else", "console varies"))[0], 0)

    def test_numbers(self):
        self.assertEqual(self.run_on(block("$ braid run 12\ntook 13 ms", "console exact"))[0], 1)
        self.assertEqual(self.run_on(block("$ braid run 12\ntook 12 ms", "console exact"))[0], 0)

    def test_dots(self):
        self.assertEqual(self.run_on(block("$ braid run 1; braid run 2; echo end\n...\nend"))[0], 0)
        self.assertEqual(self.run_on(block("$ braid run 1; echo end; echo more\n...\nend"))[0], 1)
        self.assertEqual(self.run_on(block("$ braid run 1\ntook ..."))[0], 0)

    def test_a_command_of_two_lines(self):
        self.assertEqual(self.run_on(block("$ braid run \\\n    7\ntook 7 ms", "console exact"))[0], 0)

    def test_what_is_not_run(self):
        status, output = self.run_on(block("$ braid fail", "console gpu"))
        self.assertEqual(status, 0)
        self.assertIn("not run, needs a GPU: page.md:2: braid fail", output)

    def test_a_terminal(self):
        chat = "$ test -t 0 -a -t 1 && read -p 'you> ' line || echo left"
        status, output = self.run_on(block(chat + "\nyou> left", "console terminal exact"))
        self.assertEqual(status, 0, output)
        self.assertEqual(self.run_on(block("$ echo 'you> '; exit 3", "console terminal"))[0], 1)

    @unittest.skipUnless(shutil.which("curl"), "blocks of a server need curl")
    def test_a_server(self):
        server = '$ python3 -c "import http.server as h, signal, sys; signal.signal(15, lambda *_: sys.exit({})); ' \
                 'h.HTTPServer((\'127.0.0.1\', int(sys.argv[2])), h.SimpleHTTPRequestHandler).serve_forever()"'
        health = block("$ touch health")
        fetch = "\n$ curl -sf http://127.0.0.1:8000/health && echo here\n"
        status, output = self.run_on(health + block(server.format(0) + fetch + "here", "console server"))
        self.assertEqual(status, 0, output)
        self.assertEqual(self.run_on(health + block(server.format(0) + fetch + "gone", "console server"))[0], 1)
        status, output = self.run_on(health + block(server.format(4), "console server"))
        self.assertEqual(status, 1)
        self.assertIn("ended with 4", output)
        self.assertIn("ended with 3", self.run_on(block("$ sh -c 'exit 3' -", "console server"))[1], "never answers")

    def test_a_program_in_python(self):
        self.assertEqual(self.run_on(block("import json\nassert json", "python"))[0], 0)
        self.assertEqual(self.run_on(block("import json\nassert not json", "python"))[0], 1)

    def test_what_this_build_lacks(self):
        output = self.run_on(block("$ braid fail", "console mpirun"))[1]
        self.assertRegex(output, "not run, needs (mpirun|a build with PMIx): page.md:2: braid fail")

    def test_commands_follow_each_other_in_one_folder(self):
        self.assertEqual(self.run_on(block("$ echo x > file") + block("$ cat file\nx", "console exact"))[0], 0)

    def test_the_model(self):
        page = block("$ test -e $MODEL")
        status, output = self.run_on(page)
        self.assertEqual(status, 77)
        self.assertIn("Skipped\nno demo model", output)
        self.assertEqual(self.run_on(page, "--model", "model")[0], 0)

    def test_nothing_escapes(self):
        for page, why in ((block("$ braid", ""), "without a language"), (block("$ braid", "console gpus"), "'gpus'"),
                          ("text\n\n    braid fail\n", "indented"), (block("braid"), "begins with a command"),
                          (block(""), "begins with"), ("```console\n$ braid\n", "does not end")):
            status, output = self.run_on(page)
            self.assertEqual(status, 1, page)
            self.assertIn(why, output)

    def test_other_blocks_are_left_alone(self):
        self.assertEqual(self.run_on(block("braid fail", "text") + "- item\n\n  more of it\n")[0], 0)


if __name__ == "__main__":
    unittest.main()
