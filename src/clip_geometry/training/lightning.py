"""A Lightning callback that logs the geometry of a model."""

from typing import Any

import torch
from lightning.pytorch import Callback

from clip_geometry.training.monitor import Embed, GeometryMonitor


class LightningGeometry(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Callback for Lightning that measures the embeddings of a probe every N steps, and logs the numbers.

    A probe is a fixed set of inputs. It is embedded in eval mode, without using random numbers of the training. The
    numbers are named `geometry/…` and go to all loggers of the trainer at `trainer.global_step`. They are also in
    `trainer.callback_metrics`, where EarlyStopping and ModelCheckpoint find them.

    Args:
        embed: Function of the LightningModule that returns the embeddings of the probe: modality → (n, d) rows,
            aligned; or that yields them batch by batch.
        every: Steps between measurements.
        stop: Whether to stop the training when the alarm goes on.
        options: Options of `GeometryMonitor`, such as `metric` and `alarm`.

    Example:
        >>> import torch
        >>> from lightning.pytorch import LightningModule, Trainer
        >>> from clip_geometry.training import LightningGeometry
        >>> probe = torch.randn(50, 4)
        >>> callback = LightningGeometry(lambda module: {"image": module.image(probe), "text": probe}, every=10)
        >>> trainer = Trainer(callbacks=[callback], logger=False, enable_checkpointing=False, accelerator="cpu")
    """

    def __init__(self, embed: Embed, *, every: int = 100, stop: bool = False, **options: Any):
        self.monitor = GeometryMonitor(self._log, every=every, embed=embed, **options)
        self.stop = stop
        self._trainer = None
        self._last = -1  # step of the last measurement

    def _log(self, scalars: dict[str, float], step: int) -> None:
        """Log the numbers to all loggers of the trainer, and make them available to its other callbacks."""
        assert self._trainer is not None
        for logger in self._trainer.loggers:
            logger.log_metrics(scalars, step=step)
        self._trainer.callback_metrics.update({name: torch.tensor(value) for name, value in scalars.items()})

    def _measure(self, trainer: Any, module: Any) -> None:
        """Measure once per step, and stop the training after a collapse if `stop` is set."""
        if trainer.global_step != self._last and not trainer.sanity_checking:
            self._trainer = trainer
            self._last = trainer.global_step
            self.monitor.measure(trainer.global_step, module)
            trainer.should_stop |= self.stop and self.monitor.collapsed

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any, **named: Any) -> None:
        if trainer.global_step % self.monitor.every == 0:
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._measure(trainer, pl_module)
