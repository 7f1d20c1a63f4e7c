"""Cases of the Python module, on the bundled model. Run by module.sh, which sets PYTHONPATH, LINNET_LIBRARY and LINNET_COMMAND."""
import array
import gc
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import warnings

import linnet
from linnet import _abi

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models" / "tiny"


def resident():
    for line in pathlib.Path("/proc/self/status").read_text().split("\n"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024


def fresh(code, **more):
    """Runs a program in a new Python and returns the finished process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, **more)


class Layout(unittest.TestCase):
    def test_structs_are_those_of_the_compiler(self):
        import ctypes
        lines = pathlib.Path(os.environ["LINNET_ABI"]).read_text().split("\n")
        self.assertGreater(len(lines), 400)
        for line in filter(None, lines):
            name, value = line.split()
            struct, _, member = name.partition(".")
            kind = getattr(_abi, struct)
            self.assertEqual(getattr(kind, member).offset if member else ctypes.sizeof(kind), int(value), name)


    def test_words_are_those_of_the_enums(self):
        from linnet import _options, _model, _training
        for prefix, table in (("LN_DEVICE_", _options.DEVICES), ("LN_TEMPLATE_", _options.TEMPLATES), ("LN_POOLING_", _model.POOLINGS),
                              ("LN_SCHEDULE_", _training.SCHEDULES), ("LN_METHOD_", _training.METHODS),
                              ("LN_PREFERENCE_", _training.PREFERENCES)):
            want = {name[len(prefix):].lower(): value for name, value in vars(_abi).items()
                    if name.startswith(prefix) and name != "LN_DEVICE_ABI"}
            self.assertEqual(table, want, prefix)


class Generating(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = linnet.Model(TINY, numerics="exact", n_ctx=512, n_parallel=4)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_pieces_make_the_text(self):
        answer = self.model.generate("Tell me a story.", max_tokens=24, temperature=0)
        pieces = list(answer)
        result = answer.result()
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), result.text)
        self.assertEqual((result.finish, len(result.ids)), ("length", 24))
        self.assertEqual(result.metrics["generated_tokens"], 24)
        again = self.model.generate(result.prompt_ids, max_tokens=24, temperature=0)
        self.assertEqual(again.text, result.text)
        command = subprocess.run([os.environ["LINNET_COMMAND"], "run", TINY, "Tell me a story.", "-n", "24", "--temp", "0", "--json",
                                  "--numerics", "exact"], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(command.stdout)["ids"], result.ids)

    def test_seed_and_sampling(self):
        texts = [self.model.generate("Once", max_tokens=12, temperature=1.0, seed=s).text for s in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        first = self.model.generate("Once", max_tokens=4, temperature=0).result()
        biased = self.model.generate("Once", max_tokens=1, temperature=0, logit_bias={first.ids[0]: -math.inf}).result()
        self.assertNotEqual(biased.ids[0], first.ids[0])
        with self.assertRaisesRegex(TypeError, "max_token$"):
            self.model.generate("Once", max_token=3)
        with self.assertRaisesRegex(linnet.UsageError, "temperature"):
            self.model.generate("Once", temperature=-1)

    def test_chat_stop_schema(self):
        talk = [{"role": "user", "content": "Tell me a story."}]
        answer = self.model.chat(talk, max_tokens=60, temperature=0)
        self.assertEqual(answer.text, self.model.generate("Tell me a story.", template="chat", max_tokens=60, temperature=0).text)
        word = answer.text.split()[3]
        self.assertNotIn(word, self.model.chat(talk, max_tokens=60, temperature=0, stop=word).text)
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"]}
        value = json.loads(self.model.chat(talk, max_tokens=80, temperature=0, schema=schema).text)
        self.assertIn(value["n"], range(1, 10))
        with self.assertRaises(linnet.InvalidError):
            self.model.chat(talk, schema={"type": "nothing"})

    def test_tools(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}}}
        answer = self.model.chat([{"role": "user", "content": "Weather?"}], tools=[tool], tool_choice="required", max_tokens=100,
                                 temperature=0)
        kinds = [e.kind for e in answer.events()]
        call = answer.result().tool_calls[0]
        self.assertEqual(call.name, "weather")
        self.assertIn(json.loads(call.arguments)["city"], ("Oslo", "Rome"))
        self.assertIn("tool_call", kinds)
        self.assertEqual(kinds[-1], "finish")

    def test_logprobs(self):
        answer = self.model.generate("Once upon", max_tokens=5, temperature=0, n_logprobs=3)
        events = [e for e in answer.events() if e.kind == "token"]
        result = answer.result()
        self.assertEqual([e.id for e in events], result.ids)
        self.assertEqual([e.logprob for e in events], result.logprobs)
        for id_, logprob, top in zip(result.ids, result.logprobs, result.top):
            self.assertEqual(len(top), 3)
            self.assertEqual(top[0], (id_, logprob))

    def test_threads(self):
        want = [self.model.generate(f"Story {i}", max_tokens=16, temperature=0).text for i in range(6)]
        got = [None] * 6

        def run(i):
            got[i] = self.model.generate(f"Story {i}", max_tokens=16, temperature=0).text

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(got, want)

    def test_gil_is_released(self):
        answer = self.model.generate("Tell me", max_tokens=400, temperature=0, ignore_eos=True)
        counted = [0]
        done = threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count)
        thread.start()
        answer.result()
        done.set()
        thread.join()
        self.assertGreater(counted[0], 100)

    def test_cancel(self):
        answer = self.model.generate("Tell me", max_tokens=400, temperature=0, ignore_eos=True)
        next(answer)
        answer.cancel()
        self.assertEqual(answer.result().finish, "cancelled")
        others = [self.model.generate("Tell me", max_tokens=400, temperature=0, ignore_eos=True) for _ in range(3)]
        self.model.cancel()
        self.assertEqual([a.result().finish for a in others], ["cancelled"] * 3)

    def test_tokens(self):
        text = "Ångström 日本 🙂"
        ids = self.model.tokenize(text)
        self.assertEqual(self.model.detokenize(ids), text)
        self.assertEqual(self.model.detokenize(array.array("i", ids)), text)
        with self.assertRaisesRegex(linnet.UsageError, "astype"):
            self.model.detokenize(array.array("d", [1.0]))
        self.assertGreater(len(self.model.prompt_ids("Hello", template="chat")), len(self.model.prompt_ids("Hello", template="raw")))

    def test_score_classify_embed(self):
        ids = self.model.tokenize("Once upon a time there was")
        scores = self.model.score(ids)
        self.assertEqual((scores.format, len(scores)), ("d", len(ids)))
        self.assertTrue(math.isnan(scores[0]) and all(s < 0 for s in scores[1:]))
        self.assertEqual(self.model.score("Once upon a time there was").tolist()[1:], scores.tolist()[1:])
        classes = self.model.classify(["The girl was happy.", [1, 2, 3]], ["good", "bad"], template="raw")
        for c in classes:
            self.assertIn(c.label, ("good", "bad"))
            self.assertAlmostEqual(sum(c.probabilities.values()), 1)
        bad = self.model.classify(["x", [10 ** 8]], ["good", "bad"])
        self.assertIsNone(bad[0].error)
        self.assertIsInstance(bad[1].error, linnet.InvalidError)
        vectors = self.model.embed(["a cat", "a dog", "a cat"])
        self.assertEqual(vectors.shape, (3, self.model.info["width"]))
        self.assertEqual(vectors.tolist()[0], vectors.tolist()[2])
        with self.assertRaisesRegex(linnet.InvalidError, r"texts\[1\]"):
            self.model.embed(["a", [10 ** 8]])
        with self.assertRaises(linnet.UsageError):
            self.model.embed("one text")

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("SKIP: numpy is not installed: arrays of NumPy are NOT tested")
        ids = numpy.array(self.model.tokenize("a cat sat"), dtype=numpy.int32)
        scores = numpy.asarray(self.model.score(ids))
        self.assertEqual((scores.dtype, scores.shape), (numpy.float64, ids.shape))
        vectors = numpy.asarray(self.model.embed(["a cat", "a dog"]))
        self.assertEqual((vectors.dtype, vectors.ndim), (numpy.float32, 2))
        self.assertAlmostEqual(float(numpy.linalg.norm(vectors[0])), 1, places=5)
        with self.assertRaisesRegex(linnet.UsageError, "int32"):
            self.model.score(ids.astype("int64"))


class Opening(unittest.TestCase):
    def test_errors(self):
        for kind, base, make in (
                (linnet.FileError, OSError, lambda: linnet.Model("/does/not/exist")),
                (linnet.OutOfMemoryError, MemoryError, lambda: linnet.Model(TINY, memory_bytes=1 << 20)),
                (linnet.UsageError, ValueError, lambda: linnet.Model(TINY, n_ctx=1 << 40)),
                (linnet.UsageError, ValueError, lambda: linnet.Model(TINY, device="tpu")),
                (TypeError, TypeError, lambda: linnet.Model(TINY, contexts=3))):
            with self.assertRaises(kind) as caught:
                make()
            self.assertIsInstance(caught.exception, base)
            self.assertGreater(len(str(caught.exception)), 10)

    def test_closed(self):
        model = linnet.Model(TINY, n_ctx=256)
        answer = model.generate("Once", max_tokens=200)
        model.close()
        model.close()
        with self.assertRaises(linnet.UsageError):
            model.generate("Once")
        self.assertIn(answer.result().finish, ("cancelled", "length", "stop"))
        answer.close()
        with self.assertRaises(linnet.UsageError):
            answer.result() if answer._result is None else model.info

    def test_opens_leak_nothing(self):
        many = int(os.environ.get("LINNET_OPENS", "30"))

        def once():
            with linnet.Model(TINY, n_ctx=256) as model:
                model.generate("Once", max_tokens=2).result()
                model.embed(["a"])

        for _ in range(10):
            once()
        gc.collect()
        before = resident()
        for _ in range(many):
            once()
        gc.collect()
        self.assertLess(resident() - before, 8 << 20)

    def test_fork_warns_and_the_child_says_why(self):
        got = fresh(f"""
import os, warnings, linnet
model = linnet.Model({str(TINY)!r}, n_ctx=512)

def in_child():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(len(model.generate("Once", max_tokens=2).result().ids))
            except linnet.UsageError as error:
                os._exit(9 if "fork" in str(error) else 8)
    assert any("linnet" in str(w.message) for w in seen), seen
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

print(in_child())
busy = model.generate("Once", max_tokens=400, temperature=0, ignore_eos=True)
next(busy)
print(in_child())
print(busy.result().finish)
model.close()
with warnings.catch_warnings():
    warnings.simplefilter("error")
    if os.fork() == 0:
        os._exit(0)
""")
        self.assertEqual((got.returncode, got.stdout), (0, "2\n9\nlength\n"), got.stderr)

    def test_ctrl_c(self):
        child = subprocess.Popen([sys.executable, "-u", "-c", f"""
import linnet
model = linnet.Model({str(TINY)!r}, n_ctx=1024)
print("ready", flush=True)
try:
    while True:
        model.generate("Tell me", max_tokens=900, temperature=0, ignore_eos=True).result()
except KeyboardInterrupt:
    print("interrupted", model.generate("Once", max_tokens=2, temperature=0).result().finish)
"""], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "ready\n")
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=60)[0], "interrupted length\n")

    def test_another_version_is_rejected(self):
        got = fresh("import sys, types; m = types.ModuleType('linnet._abi')\n"
                    "import importlib.util as u\n"
                    "spec = u.find_spec('linnet'); import pathlib\n"
                    "text = pathlib.Path(spec.origin).with_name('_abi.py').read_text().replace('VERSION = \"', 'VERSION = \"9')\n"
                    "exec(text, m.__dict__); sys.modules['linnet._abi'] = m\n"
                    "import linnet")
        self.assertIn("expected version 9", got.stderr)
        self.assertEqual(got.returncode, 1)


class Adapters(unittest.TestCase):
    def test_train_and_use(self):
        with tempfile.TemporaryDirectory() as work:
            data = pathlib.Path(work) / "data.jsonl"
            data.write_text("".join(json.dumps({"text": f"The colour of thing {i} is blue."}) + "\n" for i in range(8)))
            seen = []
            end = linnet.train(TINY, data, pathlib.Path(work) / "run", steps=4, batch=2, lr=1e-2, targets="all-linear",
                               on_step=lambda report: seen.append(report["loss"]))
            self.assertEqual((end.steps, len(seen)), (4, 4))
            self.assertLess(seen[-1], seen[0])
            with linnet.Model(TINY, n_ctx=256, n_adapters=1) as model:
                adapter = model.load_adapter(pathlib.Path(work) / "run")
                plain = model.score("The colour of thing 3 is blue.").tolist()
                self.assertNotEqual(model.generate("The colour of", max_tokens=8, temperature=0, adapter=adapter, template="raw").text,
                                    "")
                with linnet.Model(TINY, n_ctx=256, adapter=(pathlib.Path(work) / "run", 1.0)) as tuned:
                    self.assertGreater(sum(tuned.score("The colour of thing 3 is blue.").tolist()[1:]), sum(plain[1:]))

            def stop(report):
                raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                linnet.train(TINY, data, pathlib.Path(work) / "other", steps=4, batch=2, on_step=stop)
            self.assertTrue(list((pathlib.Path(work) / "other" / "checkpoints").iterdir()))
            ended = linnet.train(TINY, data, pathlib.Path(work) / "third", steps=4, batch=2, on_step=lambda r: r["step"] < 2)
            self.assertEqual((ended.cancelled, ended.steps), (True, 2))
            texts = []
            linnet.train(TINY, data, pathlib.Path(work) / "texts", steps=2, batch=2, sample_every=1, sample_tokens=4,
                         sample_prompts=["The colour of", "Thing \u00e9"], on_text=texts.append)
            self.assertEqual([(x["step"], x["index"], x["prompt"]) for x in texts[:2]], [(1, 0, "The colour of"), (1, 1, "Thing \u00e9")])
            self.assertEqual(len(texts), 4)
            self.assertIsInstance(texts[0]["text"], str)
            with self.assertRaisesRegex(TypeError, "learning_rate"):
                linnet.train(TINY, data, work, learning_rate=1)


class Serving(unittest.TestCase):
    def test_server(self):
        with linnet.serve(TINY, "--log-format", "none") as server:
            body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}).encode()
            request = urllib.request.Request(server.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                self.assertEqual(json.load(answer)["choices"][0]["finish_reason"], "length")
            child = server._child.pid
        self.assertFalse(os.path.exists(f"/proc/{child}"))
        with self.assertRaisesRegex(linnet.FileError, "does/not"):
            linnet.serve("/does/not/exist")

    def test_command(self):
        got = subprocess.run([sys.executable, "-m", "linnet", "--version"], capture_output=True, text=True)
        self.assertIn(linnet.__version__, got.stdout)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main(verbosity=1)
