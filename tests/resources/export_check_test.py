"""What the exporter compares, refuses and records.

    export_check_test.py PIPEWRIGHT
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "resources")]

import torch  # noqa: E402
from torch import nn  # noqa: E402

import export_model  # noqa: E402

PIPEWRIGHT = ""


class Times(torch.autograd.Function):
    """Its backward says half of the derivative."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Layer(nn.Module):
    def __init__(self, function=None):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        x = self.linear(x)
        return self.function(x) if self.function else x


class Net(nn.Module):
    def __init__(self, function=None):
        super().__init__()
        self.first, self.second = Layer(function), Layer()

    def forward(self, x):
        return self.second(self.first(x))


def batch():
    return (torch.randn(3, 4),)


def plain():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)), batch()


def scaled_in_training():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2 if self.training else super().forward(x)

    return Scaled(4, 4), batch()


def helped_in_training():
    """With a second output in training, as Inception's auxiliary classifier."""
    class Helped(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return (y, y * 3) if self.training else y

    return Helped(4, 4), batch()


def always_drops():
    class Drops(nn.Linear):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x), 0.5, training=True)

    return Drops(4, 4), batch()


def modes():
    """All that an evaluation switches: dropout by itself, in attention and in LSTMs; norms with statistics, and without."""
    class Modes(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
            self.norms = nn.Sequential(nn.InstanceNorm1d(5, track_running_stats=True), nn.InstanceNorm1d(5))

        def forward(self, x):
            return self.norms(self.layer(self.lstm(x)[0]))

    return Modes(), (torch.randn(3, 5, 4),)


def viewed():
    class Viewed(nn.Linear):
        def forward(self, x):
            return super().forward(x.view(x.shape[0], -1))

    return Viewed(6, 4), (torch.randn(4, 3, 2).transpose(1, 2),)


def aligned():
    class Aligned(nn.Linear):
        def forward(self, x, labels):
            return nn.functional.ctc_loss(super().forward(x).log_softmax(-1).transpose(0, 1), labels, (10,) * 3, (4,) * 3)

    return Aligned(4, 5), (torch.randn(3, 10, 4), torch.randint(1, 5, (3, 4)))


def averaged():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)), batch()


def wrong_backward():
    return Net(Times.apply), batch()


def tensor_hook():
    def halve(x):
        x.register_hook(lambda gradient: gradient / 2)
        return x

    return Net(halve), batch()


def parameter_hook():
    net = Net()
    net.second.linear.bias.register_hook(lambda gradient: gradient * 0)
    return net, batch()


def module_hook():
    net = Net()
    net.second.register_full_backward_hook(lambda module, inside, outside: tuple(g * 3 for g in inside))
    return net, batch()


def hidden_state():
    class Counting(Net):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x) * self.calls

    return Counting(), batch()


def right_function():
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 3 * x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * gradient

    return Net(Same.apply), batch()


def tied():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    return net, batch()


def time_first():
    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 4)

        def forward(self, x):
            state = torch.zeros(x.shape[1], 4)
            for t in range(5):
                state = self.cell(x[t], state)
            return state

    return Lstm(), {"x": torch.randn(5, 3, 4)}


def sums_over_time():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).cumsum(0)

    return Sums(), {"x": torch.randn(5, 3, 4)}


def nested():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, batch, pair):
            return self.linear(batch["x"]) * batch["more"]["scale"] + pair[0] * pair[1]

    return Nested(), {"batch": {"x": torch.randn(3, 4), "more": {"scale": torch.rand(3, 1)}}, "pair": (torch.randn(3, 4), torch.randn(2, 4)[:1])}


def counts_inputs(detached=False):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("square", torch.zeros(4))

        def forward(self, x):
            y = self.layer(x)
            if detached:
                self.mean.mul_(0.9).add_(y.detach().sum(0))
                self.square.mul_(0.9).add_(y.detach().pow(2).sum(0))
            else:
                with torch.no_grad():
                    self.mean.mul_(0.9).add_(y.sum(0))
                    self.square.mul_(0.9).add_(y.pow(2).sum(0))
            return y

    return Counts(), {"x": torch.randn(2, 4)}


def drops_layers(layerdrop=0.0):
    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.layerdrop = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), layerdrop

        def forward(self, x):
            for layer in self.layers:
                if self.training:
                    draw = torch.rand([])
                    if draw < self.layerdrop:
                        continue
                x = nn.functional.dropout(layer(x), 0.5)
            return x

    return Drops(), batch()


def grouped(rows, weight, offsets):
    """As transformers 5 defines it: rows [offsets[e-1], offsets[e]) times weight[e]."""
    bounds = [0, *offsets.tolist()]
    return torch.cat([rows[a:b] @ weight[e] for e, (a, b) in enumerate(zip(bounds, bounds[1:]))])


def grouped_backward(ctx, gradient):
    rows, weight, offsets = ctx.saved_tensors
    bounds = [0, *offsets.tolist()]
    parts = [(slice(a, b), e) for e, (a, b) in enumerate(zip(bounds, bounds[1:]))]
    return (torch.cat([gradient[part] @ weight[e].t() for part, e in parts]), torch.stack([rows[part].t() @ gradient[part] for part, _ in parts]), None)


def define_grouped():
    """Stands for the operator that transformers registers, which is not installed here."""
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return
    operator = torch.library.custom_op("transformers::grouped_mm_fallback", grouped, mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    operator.register_fake(lambda rows, weight, offsets: rows.new_empty(rows.shape[0], weight.shape[2]))
    operator.register_autograd(grouped_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def experts(width=8, double=False):
    define_grouped()

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.weight = nn.Linear(width, 3), nn.Parameter(torch.randn(3, width, width))

        def forward(self, x):
            chosen, order = self.gate(x).argmax(-1).sort()
            offsets = (chosen[:, None] == torch.arange(3)).sum(0).cumsum(0).to(torch.int32)
            out = torch.ops.transformers.grouped_mm_fallback(x[order], self.weight, offsets)
            return out.tanh()[order.argsort()]

    return (Experts().double() if double else Experts()), (torch.randn(5, width, dtype=torch.float64 if double else torch.float32),)


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.archive = os.path.join(self.folder.name, "model.pt2")

    def tearDown(self):
        self.folder.cleanup()

    def export(self, name, *options):
        """(status, stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = export_model.main([f"{os.path.join(HERE, 'export_check_test.py')}:{name}", "--out", self.archive, *options])
        return status, out.getvalue(), err.getvalue()

    def record(self):
        extra = {"pipewright.json": ""}
        with warnings_off():
            torch.export.load(self.archive, extra_files=extra)
        return json.loads(extra["pipewright.json"])

    def refused(self, name, *phrases):
        status, _, said = self.export(name)
        self.assertEqual(status, 2)
        for phrase in phrases:
            self.assertIn(phrase, said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_an_equal_trace_is_counted_and_recorded(self):
        status, said, complaint = self.export("plain")
        self.assertEqual((status, complaint), (0, ""))
        # Two linear layers and one norm have two parameters each; the norm has three buffers.
        self.assertEqual(said, "exported and checked against eager: 1 output, 6 gradients, 3 buffers\n")
        record = self.record()
        self.assertEqual({key: record[key] for key in ("format", "check", "outputs", "gradients", "buffers")},
                         {"format": 1, "check": "equal", "outputs": 1, "gradients": 6, "buffers": 3})
        self.assertEqual(list(record["batch_dims"].values()), [0])
        shown = subprocess.run([PIPEWRIGHT, "inspect", self.archive], capture_output=True, text=True, check=True).stdout
        self.assertIn("checked against eager at export: 1 output, 6 gradients, 3 buffers", shown)
        told = json.loads(subprocess.run([PIPEWRIGHT, "inspect", self.archive, "--json"], capture_output=True, text=True, check=True).stdout)
        self.assertEqual(told["trace_check"], {"check": "equal", "outputs": 1, "gradients": 6, "buffers": 3})

    def test_a_wrong_backward_is_refused_by_parameter_module_and_function(self):
        self.refused("wrong_backward", "the gradient of `first.linear.weight`", "by 0.5 of its size", "autograd.Function `Times`", "module `first`", "--unchecked")

    def test_what_a_model_does_in_eval_alone_is_recorded_and_not_evaluated(self):
        plan = os.path.join(self.folder.name, "plan.json")
        for name, differs in (("scaled_in_training", True), ("helped_in_training", False), ("always_drops", True), ("plain", False), ("modes", False)):
            status, _, said = self.export(name)
            self.assertEqual((status, "does in eval() what its trace" in said), (0, differs), said)
            self.assertEqual("eval_differs" in self.record(), differs)
            subprocess.run([PIPEWRIGHT, "plan", self.archive, "--ranks", "1", "--microbatches", "1", "--loss", "sum", "--cluster", "a100-nvlink", "--out", plan],
                           capture_output=True, check=True)
            evaluated = subprocess.run([PIPEWRIGHT, "run", plan, "--eval"], capture_output=True, text=True, check=False)
            self.assertEqual((evaluated.returncode != 0, "--eval would not compute what the model does in eval()" in evaluated.stderr), (differs, differs), evaluated.stderr)

    def test_a_failed_export_says_what_to_change(self):
        self.refused("viewed", "use .reshape() there, or give example inputs that are contiguous")
        self.refused("aligned", "torch.export cannot trace ctc_loss")
        self.refused("averaged", "a batch norm with momentum=None reads its counter as a number")

    def test_hooks_are_refused_by_name(self):
        self.refused("tensor_hook", "the gradient of `first.linear.weight`", "hook that module `first` registers on a tensor")
        self.refused("parameter_hook", "the gradient of `second.linear.bias`", "the hook on this parameter")
        self.refused("module_hook", "the gradient of `first.linear.weight`", "the backward hook of module `second`")

    def test_state_that_python_keeps_is_refused(self):
        self.refused("hidden_state", "--unchecked")

    def test_a_function_whose_backward_is_the_derivative_is_taken(self):
        status, said, _ = self.export("right_function")
        self.assertEqual((status, said), (0, "exported and checked against eager: 1 output, 4 gradients, 0 buffers\n"))

    def test_gradients_of_tied_parameters_are_summed(self):
        status, said, _ = self.export("tied")
        self.assertEqual((status, said), (0, "exported and checked against eager: 1 output, 3 gradients, 0 buffers\n"))

    def test_unchecked_is_written_recorded_and_shown(self):
        status, said, _ = self.export("wrong_backward", "--unchecked")
        self.assertEqual((status, said), (0, "exported, NOT checked against eager (--unchecked)\n"))
        self.assertEqual(self.record()["check"], "unchecked")
        plan = os.path.join(self.folder.name, "plan.json")
        planned = subprocess.run([PIPEWRIGHT, "plan", self.archive, "--ranks", "1", "--microbatches", "2", "--loss", "sum", "--cluster", "a100-nvlink", "--out", plan],
                                 capture_output=True, text=True, check=True).stdout
        self.assertIn("exported with --unchecked", planned)
        ran = subprocess.run([PIPEWRIGHT, "run", plan, "--json"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(json.loads(ran)["trace_check"], {"check": "unchecked"})

    def test_without_weights_nothing_is_compared(self):
        status, said, _ = self.export("wrong_backward", "--meta")
        self.assertEqual((status, said), (0, "exported without weights: not checked against eager\n"))
        self.assertEqual(self.record()["check"], "meta")

    def test_the_batch_may_be_another_dimension(self):
        self.refused("time_first", "--batch-dim NAME=1")
        status, _, _ = self.export("time_first", "--batch-dim", "x=1")
        self.assertEqual(status, 0)
        self.assertEqual(self.record()["batch_dims"], {"x": 1})
        inputs = json.loads(subprocess.run([PIPEWRIGHT, "inspect", self.archive, "--json"], capture_output=True, text=True, check=True).stdout)["inputs"]
        self.assertEqual([isinstance(size, int) for size in inputs[0]["shape"]], [True, False, True])

    def test_a_dimension_that_does_not_look_like_samples_is_told(self):
        status, _, said = self.export("sums_over_time")
        self.assertEqual(status, 0)
        self.assertIn("export again with --batch-dim x=1", said)
        self.assertEqual(self.export("sums_over_time", "--batch-dim", "x=1")[2], "")

    def test_wrong_batch_dimensions_are_refused(self):
        self.assertIn("which is not an input; the inputs are x", self.export("time_first", "--batch-dim", "y=1")[2])
        self.assertIn("that input `x` with 3 dimensions lacks", self.export("time_first", "--batch-dim", "x=3")[2])
        self.assertIn("pair.1: 1", self.export("nested")[2])

    def test_inputs_may_be_nested_and_lack_a_batch(self):
        status, _, said = self.export("nested", "--batch-dim", "pair.1=none")
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(self.record()["batch_dims"], {"batch_x": 0, "batch_more_scale": 0, "pair_0": 0})

    def test_experts_become_operators_of_torch(self):
        grouped_product = "torch.ops.aten._grouped_mm.default"
        for options, expected in (((), grouped_product), (("--set", "width=6"), "torch.ops.aten.bmm.default"), (("--set", "double=True"), "torch.ops.aten.bmm.default")):
            with self.subTest(options=options):
                status, said, complaint = self.export("experts", *options)
                self.assertEqual((status, complaint), (0, ""))
                self.assertIn("1 output, 1 gradient", said)  # the gate has none: argmax
                with warnings_off():
                    targets = {f"torch.ops.{node.target}" for node in torch.export.load(self.archive).graph.nodes if node.op == "call_function"}
                self.assertIn(expected, targets)
                self.assertFalse([target for target in targets if "transformers" in target])

    def test_layers_dropped_at_random_are_refused_with_place_and_cure(self):
        self.assertEqual(self.export("drops_layers")[0], 0)
        os.remove(self.archive)
        status, _, said = self.export("drops_layers", "--set", "layerdrop=0.5")
        self.assertEqual(status, 2)
        self.assertRegex(said, r"failed at export_check_test.py:\d+ \(`if draw < self.layerdrop:`\)")
        self.assertIn("set layerdrop to 0", said)


    def test_what_torch_cannot_read_back_is_refused_with_a_cure_that_works(self):
        status, _, said = self.export("counts_inputs")
        self.assertEqual(status, 2)
        self.assertIn("torch cannot read back what it exported", said)
        self.assertIn("leave the block out and .detach() what goes into them", said)
        self.assertEqual(self.export("counts_inputs", "--set", "detached=True")[0], 0)


@contextlib.contextmanager
def warnings_off():
    with export_model.quiet():
        yield


if __name__ == "__main__":
    PIPEWRIGHT = os.path.abspath(sys.argv.pop(1))
    torch.set_num_threads(1)
    unittest.main()
