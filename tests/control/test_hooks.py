"""Markers of training steps on the CPU, in every way that PyTorch runs them."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from wastenot.control.hooks import Hooks, Seen, layers_of, owners_of  # noqa: E402

PASSES = ["iteration", "forward", "loss", "backward", "optimizer"]
LAYERS = [
    "iteration", "embedding", "forward", "forward:0", "forward:1", "forward:2", "loss",
    "backward", "backward:0", "backward:1", "backward:2", "embedding_backward", "optimizer",
]  # fmt: skip


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, rows):
        return rows + torch.relu(self.linear(rows))


class Model(nn.Module):
    """A small language model; ``recompute`` is that of activation checkpointing, None for none."""

    def __init__(self, recompute=None):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.pair = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])  # repeated too, but small
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(8, 20)
        self.recompute = recompute

    def forward(self, tokens):
        rows = self.table(tokens)
        for layer in self.layers:
            rows = layer(rows) if self.recompute is None else checkpoint(layer, rows, use_reentrant=self.recompute)
        return self.head(rows)


class Job:
    def __init__(self, model, run=None):
        self.model, self.run = model, model if run is None else run
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.tokens = torch.randint(0, 20, (2, 5))
        self.names = []

    def hooks(self, *, wanted=(), by_layers=True, **arguments):
        hooks = Hooks(lambda *names: self.names.extend(names), torch, **arguments)
        hooks.configure(wanted=wanted, by_layers=by_layers)
        return hooks

    def micro_step(self):
        logits = self.run(self.tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens.flatten()).backward()

    def step(self, micro_steps=1):
        for _ in range(micro_steps):
            self.micro_step()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def markers(self, steps=3, micro_steps=1):
        """Of the last step."""
        for _ in range(steps):
            self.names.clear()
            self.step(micro_steps)
        return list(self.names)


def watched(job, **arguments):
    hooks = job.hooks(**arguments)
    hooks.watch(job.run, optimizers=[job.optimizer])
    return hooks


def test_passes_of_a_step():
    job = Job(Model())
    hooks = watched(job)
    assert job.markers() == PASSES
    assert hooks.seen() == Seen(sum(one.numel() for one in job.model.parameters()), "float32", 10, 3)


def test_layers_take_their_turns_in_order_of_execution():
    job = Job(Model())
    watched(job, wanted=LAYERS)
    assert job.markers() == LAYERS


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_recomputed_layers_belong_to_the_backward_pass(reentrant):
    job = Job(Model(recompute=reentrant))
    watched(job, wanted=LAYERS)
    names = job.markers()
    # Reentrant checkpoints hide the first layer's input where nothing before it has a gradient; here the table has one.
    assert names == LAYERS


def test_accumulated_gradients_are_one_iteration():
    job = Job(Model())
    hooks = watched(job)
    names = job.markers(micro_steps=2)
    assert names == [*PASSES[:-1], *PASSES[1:]]
    assert hooks.seen().tokens == 20


def test_evaluation_is_no_iteration():
    job = Job(Model())
    watched(job)
    job.markers()
    job.names.clear()
    with torch.no_grad():
        job.run(job.tokens)
    job.model.eval()
    job.run(job.tokens)
    job.model.train()
    assert job.names == []
    assert job.markers(1) == PASSES


def test_backward_begins_with_the_loss_where_passes_are_those_of_pytorch():
    job = Job(Model())
    watched(job, by_layers=False)
    assert job.markers() == ["iteration", "forward", "backward", "optimizer"]


def test_a_step_that_fails_leaves_the_next_as_it_is():
    job = Job(Model())
    watched(job)
    job.markers()
    with pytest.raises(IndexError):
        job.run(torch.full((2, 5), 99))
    assert job.markers(2) == PASSES


def test_detached_hooks_say_nothing():
    job = Job(Model())
    hooks = watched(job)
    job.markers()
    hooks.detach()
    assert job.markers() == []
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in job.model.modules())


class TestFromOutside:
    """A program that knows nothing of it: the model is found by its optimizer."""

    def watched(self, job, **arguments):
        hooks = job.hooks(**arguments)
        hooks.watch_all_optimizers()
        return hooks

    def test_the_model_is_found_after_the_first_step(self):
        job = Job(Model())
        hooks = self.watched(job, wanted=LAYERS)
        try:
            assert job.markers(1) == []
            assert job.markers(2) == LAYERS
        finally:
            hooks.detach()

    def test_a_wrapped_model_counts_once(self):
        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, tokens):
                return self.module(tokens)

        model = Model()
        job = Job(model, Wrapper(model))
        hooks = self.watched(job)
        try:
            assert job.markers() == PASSES
            job.run = model  # that the program calls what is inside
            assert job.markers() == PASSES
        finally:
            hooks.detach()

    def test_an_optimizer_of_copies_still_gives_iterations(self):
        job = Job(Model())
        copies = [one.detach().clone().requires_grad_() for one in job.model.parameters()]
        job.optimizer = torch.optim.SGD(copies, lr=0.1)
        hooks = self.watched(job)
        try:
            assert job.markers() == ["optimizer", "iteration"]
        finally:
            hooks.detach()

    def test_two_optimizers_of_one_model_are_one_iteration(self):
        job = Job(Model())
        one, other = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (job.model.layers, job.model.head))

        class Both:
            def step(self):
                one.step()
                other.step()

            def zero_grad(self):
                job.model.zero_grad()

        job.optimizer = Both()
        hooks = self.watched(job)
        try:
            names = job.markers()
            assert [name for name in names if name in ("iteration", "optimizer")] == ["iteration", "optimizer"]
        finally:
            hooks.detach()


class TestCompiled:
    """The passes are seen at the boundary of what is compiled, which is not compiled again because of it."""

    def graphs(self, job, markers):
        from torch._dynamo.utils import counters

        torch._dynamo.reset()
        counters.clear()
        names = job.markers()
        return names if markers else None, counters["stats"]["unique_graphs"], dict(counters["graph_break"])

    @pytest.mark.parametrize(
        ("by", "from_outside"),
        [
            pytest.param("torch.compile", False, marks=pytest.mark.slow),
            ("model.compile", True),
            pytest.param("torch.compile", True, marks=pytest.mark.slow),
            pytest.param("model.compile", False, marks=pytest.mark.slow),
        ],
    )
    def test_passes(self, by, from_outside):
        def made():
            model = Model()
            if by == "model.compile":
                model.compile(backend="aot_eager", fullgraph=True)
                return Job(model)
            return Job(model, torch.compile(model, backend="aot_eager", fullgraph=True))

        _, graphs, breaks = self.graphs(made(), markers=False)
        job = made()
        hooks = job.hooks(wanted=LAYERS)
        if from_outside:
            hooks.watch_all_optimizers()
        else:
            hooks.watch(job.run, optimizers=[job.optimizer])
        try:
            assert self.graphs(job, markers=True) == (PASSES, graphs, breaks)
            assert graphs >= 1
        finally:
            hooks.detach()
            torch._dynamo.reset()


def test_layers_are_the_repeated_modules_with_most_parameters():
    model = Model()
    assert layers_of(model, torch) == list(model.layers)
    assert layers_of(nn.Linear(2, 2), torch) == []


def test_owners_hold_all_parameters_of_an_optimizer():
    model = Model()
    assert owners_of(torch.optim.SGD(model.parameters()), torch)[0] is model
    assert owners_of(torch.optim.SGD(model.head.parameters()), torch)[-1] is model.head
