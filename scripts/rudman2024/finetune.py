"""Fine-tuning with I-STAR as library calls: the effect of λ on isotropy and accuracy.

python scripts/rudman2024/finetune.py [--model all-MiniLM-L6-v2] [--task wnli] [--lambdas -3 0 3] …
"""

import argparse
from pathlib import Path

from clip_geometry.config import validate
from clip_geometry.geometry import isoscore
from clip_geometry_experiments.rudman2024.finetune import Finetune, FinetuneConfig, Method
from clip_geometry_experiments.rudman2024.finetune.measuring import evaluate, metrics
from clip_geometry_experiments.run.runner import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert/fresh", help="hf-text:ORG/NAME, all-MiniLM-L6-v2, bert/fresh, …")
    parser.add_argument("--task", default="scenes", help="a task; a fifth of its examples is held out")
    parser.add_argument("--lambdas", type=float, nargs="+", default=[-3, 0, 3], help="lambda of I-STAR (0: none)")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of AdamW")
    parser.add_argument("--epochs", type=int, default=4, help="number of epochs")
    args = parser.parse_args()
    section = {"name": "finetune", "experiment": "finetune", "task": args.task, "lr": args.lr, "epochs": args.epochs}
    model = {"model": args.model, "pooling": "mean"}
    config = validate(FinetuneConfig, {**section, "model": model, "held_out": 0.2}, "the command line")
    experiment = Finetune(config, RunFolder(Path("runs/finetune")))
    validation = experiment.examples[1]

    # head, batches and dropout are the same for every λ; only the penalty differs
    for lambda_ in args.lambdas:
        trainer = experiment.trained(Method("i_star", lambda_) if lambda_ else Method("none"), seed=0)
        evaluation = evaluate(trainer, experiment.inputs[1], tokens=None, seed=0)
        (name, metric), *_ = metrics(validation, experiment.inputs[1], evaluation).items()
        print(f"λ = {lambda_:g}: IsoScore of all layers {isoscore(evaluation.layers):.4f}, {name} {metric():.3f}")


if __name__ == "__main__":
    main()
