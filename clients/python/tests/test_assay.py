"""Tests of the package, without a workflow: `python3 -m unittest discover clients/python/tests`."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import assay  # noqa: E402


class InStep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ["inputs", "outputs", "resume"]:
            (self.root / name).mkdir()
        (self.root / "inputs/data").write_text("rows")
        (self.root / "params.json").write_text('{"lr": 0.3, "model": {"dim": 8}}')
        variables = {
            "ASSAY_INPUTS": "inputs",
            "ASSAY_OUTPUTS": "outputs",
            "ASSAY_RESUME": "resume",
            "ASSAY_PARAMS": "params.json",
            "ASSAY_METRICS": "metrics.jsonl",
        }
        variables = {name: str(self.root / path) for name, path in variables.items()}
        variables.update(ASSAY_SEED="17", ASSAY_REPLICATE="2", ASSAY_THREADS="3", ASSAY_DEVICE="cuda")
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def lines(self):
        return [json.loads(line) for line in (self.root / "metrics.jsonl").read_text().splitlines()]

    def test_params_replace_defaults(self):
        self.assertEqual(assay.params(lr=1, steps=5), {"lr": 0.3, "steps": 5, "model": {"dim": 8}})

    def test_metrics_are_appended(self):
        assay.log(1, loss=0.5)
        assay.log(2.0, {"train/loss": 1}, lr=True)
        assay.log(accuracy=0.9)
        assay.log({"test/loss": 0.25})
        expected = [{"step": 1, "loss": 0.5}, {"step": 2, "train/loss": 1, "lr": 1}, {"accuracy": 0.9}, {"test/loss": 0.25}]
        self.assertEqual(self.lines(), expected)

    def test_values_that_are_not_metrics_are_refused(self):
        for step, value in [(1, "low"), (1, None), (1, [1, 2]), (-1, 1), (1.5, 1), ("x", 1), (float("nan"), 1), (10**400, 1), (1, 10**400)]:
            with self.assertRaises(assay.StepError, msg=f"{step} {value}"):
                assay.log(step, loss=value)
        with self.assertRaises(assay.StepError):
            assay.log(1, {"step": 3})
        self.assertFalse((self.root / "metrics.jsonl").exists())

    def test_files(self):
        self.assertEqual(assay.input("data").read_text(), "rows")
        with self.assertRaisesRegex(assay.StepError, "no input `model`; the step has: data"):
            assay.input("model")
        assay.output("plots/loss.png").write_text("x")
        self.assertTrue((self.root / "outputs/plots/loss.png").exists())
        self.assertEqual(assay.resume(), self.root / "resume")
        for bad in ["../x", "/etc/passwd", "", "a/../../x"]:
            with self.assertRaises(assay.StepError, msg=bad):
                assay.output(bad)

    def test_numbers_of_the_step(self):
        found = (assay.in_step(), assay.seed(), assay.replicate(), assay.threads(), assay.device())
        self.assertEqual(found, (True, 17, 2, 3, "cuda"))


class ByHand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_script_runs_without_a_workflow(self):
        self.assertEqual((assay.in_step(), assay.params(lr=1), assay.seed(), assay.replicate()), (False, {"lr": 1}, 0, 1))
        assay.output("model").write_text("weights")
        self.assertEqual(pathlib.Path("assay-run/outputs/model").read_text(), "weights")
        self.assertTrue(assay.resume().is_dir())
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assay.log(10, loss=0.5)
        self.assertEqual(printed.getvalue(), "step=10 loss=0.5\n")
        with self.assertRaisesRegex(assay.StepError, "does not run as a step"):
            assay.input("data")


if __name__ == "__main__":
    unittest.main()
