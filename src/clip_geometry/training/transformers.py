"""A callback for transformers' Trainer that logs the geometry of a model."""

from typing import Any

from transformers import Trainer, TrainerCallback

from clip_geometry.training.monitor import Embed, GeometryMonitor


class GeometryCallback(TrainerCallback):
    """Callback for transformers' Trainer that measures the embeddings of a probe every N steps, and logs the numbers.

    A probe is a fixed set of inputs. It is also measured at each evaluation and at the end, in eval mode, without using
    random numbers of the training. The numbers are named `geometry/…`. They go through `trainer.log` to every logger in
    `report_to` and to `trainer.state.log_history`; TensorBoard shows them as `train/geometry/…`.

    Args:
        trainer: The trainer, to which this callback must then be added.
        embed: Function of the model that returns the embeddings of the probe: modality → (n, d) rows, aligned; or that
            yields them batch by batch.
        every: Steps between measurements; None measures only at evaluations and at the end.
        stop: Whether to stop the training when the alarm goes on.
        options: Options of `GeometryMonitor`, such as `metric` and `alarm`.

    Example:
        >>> import tempfile, torch
        >>> from transformers import Trainer, TrainingArguments
        >>> from clip_geometry.training import GeometryCallback
        >>> class Towers(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.image, self.text = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        ...     def forward(self, x, y):
        ...         return {"loss": (self.image(x) - self.text(y)).square().mean()}
        >>> data = [{"x": row, "y": row} for row in torch.eye(4).repeat(4, 1)]
        >>> arguments = TrainingArguments(
        ...     tempfile.mkdtemp(), max_steps=4, report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no",
        ...     logging_strategy="no",
        ... )
        >>> trainer = Trainer(Towers(), arguments, train_dataset=data)
        >>> probe = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> embed = lambda model: {"image": model.image(probe), "text": model.text(probe)}
        >>> trainer.add_callback(GeometryCallback(trainer, embed, every=2))
        >>> trainer.train()
        {'geometry/modality_gap': ...TrainOutput(...)
        >>> [entry["step"] for entry in trainer.state.log_history if "geometry/modality_gap" in entry]
        [2, 4]
    """

    def __init__(self, trainer: Trainer, embed: Embed, *, every: int | None = 100, stop: bool = False, **options: Any):
        self.monitor = GeometryMonitor(self._log, every=1 if every is None else every, embed=embed, **options)
        self.trainer = trainer
        self.every = every
        self.stop = stop
        self._last = -1  # step of the last measurement

    def _log(self, scalars: dict[str, float], step: int) -> None:
        should_log = self.trainer.control.should_log  # `log` resets this, and the loss of this step would not be logged
        self.trainer.log(dict(scalars))
        self.trainer.control.should_log = should_log

    def _measure(self, state: Any, control: Any, model: Any) -> None:
        """Measure once per step, and stop the training after a collapse if `stop` is set."""
        if state.global_step != self._last:  # an evaluation can follow at a step that was measured already
            self._last = state.global_step
            self.monitor.measure(state.global_step, model)
            control.should_training_stop |= self.stop and self.monitor.collapsed

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any = None, **rest: Any) -> None:
        if self.every and state.global_step % self.every == 0:
            self._measure(state, control, model)

    def on_evaluate(self, args: Any, state: Any, control: Any, *, model: Any = None, **rest: Any) -> None:
        self._measure(state, control, model)

    def on_train_end(self, args: Any, state: Any, control: Any, *, model: Any = None, **rest: Any) -> None:
        self._measure(state, control, model)
