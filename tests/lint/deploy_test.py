"""The files of deploy/ are what the programs that read them take; each check finds a fault."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "tools"))

import make_dashboard  # noqa: E402


def overlaps(panels):
    taken, twice = set(), []
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}
        if cells & taken or max(x for x, _ in cells) >= 24:
            twice.append(panel["title"])
        taken |= cells
    return twice


def verify(unit):
    """What systemd-analyze says of a unit, with a program that exists."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "braid.service")
        file.write_text(unit.replace("/usr/bin/braid", "/bin/true"))
        result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)],
                                capture_output=True, text=True, timeout=60, check=False)
        return [line for line in result.stderr.splitlines() if "braid.service" in line]


class DeployTest(unittest.TestCase):
    def test_dashboard(self):
        text = (DEPLOY / "grafana" / "braid.json").read_text()
        self.assertEqual(text, make_dashboard.dashboard("braid"), "run tools/make_dashboard.py")
        board = json.loads(text)
        self.assertEqual(overlaps(board["panels"]), [])
        self.assertEqual(overlaps([*board["panels"], board["panels"][3]]), ["Time to first token"])
        for panel in board["panels"]:
            self.assertTrue(panel["targets"])
            for target in panel["targets"]:
                self.assertEqual(target["expr"].count("("), target["expr"].count(")"))
        variables = {variable["name"] for variable in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?(?!__)(\w+)", text))
        self.assertLessEqual(used, variables)
        self.assertIn("vllm:num_requests_running", make_dashboard.dashboard("vllm"))
        self.assertNotIn("braid:", make_dashboard.dashboard("vllm"))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_unit(self):
        unit = (DEPLOY / "deb" / "braid.service").read_text()
        self.assertEqual(verify(unit), [])
        self.assertNotEqual(verify(unit.replace("ProtectSystem=strict", "ProtectSystem=most")), [])

    @unittest.skipUnless(shutil.which("promtool"), "no promtool")
    def test_prometheus(self):
        for command, file in (("rules", "braid.rules.yml"), ("config", "prometheus.yml")):
            subprocess.run(["promtool", "check", command, file], cwd=DEPLOY / "prometheus",
                           check=True, timeout=60)

    def test_dockerfile(self):
        lines = (DEPLOY / "docker" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
        words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        self.assertEqual(set(words), {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "USER", "EXPOSE",
                                      "HEALTHCHECK", "ENTRYPOINT", "CMD"})
        for line in lines:
            if line.split()[:1] in (["ENTRYPOINT"], ["CMD"]):
                self.assertIsInstance(json.loads(line.split(maxsplit=1)[1]), list)
        targets = re.findall(r"make (\w+)", "\n".join(lines))
        makefile = (ROOT / "Makefile").read_text()
        for target in targets:
            if target != "git":
                self.assertRegex(makefile, rf"(?m)^{target}:")


if __name__ == "__main__":
    unittest.main()
