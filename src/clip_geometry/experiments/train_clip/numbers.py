"""What the training of a CLIP says beyond measures and evaluators: losses, temperature, change, correlations."""

from clip_geometry.experiments.kit.explained import INFINITY, explainer

SOURCE = "Radford et al. 2021, arXiv:2103.00020"
CLUSTERS = "Mickus et al. 2024, arXiv:2402.03191"


_number = explainer("train_clip", reference=SOURCE, group="training")


NUMBERS = (
    _number(
        "loss",
        "Loss on held-out pairs",
        "What the arm minimises, without what a penalty adds, on pictures and captions that are not trained on.",
        "At log(batch size) a contrastive loss knows nothing.",
        "Of different arms different losses: compare curves of one arm. It depends on the batch size. With class "
        "labels it rises in the end, since pictures of classes that are not trained are among those measured.",
        "mean over batches of the training's size",
        0,
        INFINITY,
        direction="lower is better",
    ),
    _number(
        "training_loss",
        "Loss of the training batches",
        "The same on the batches that are trained on, the mean of the steps since the state before.",
        "Far below the loss on held-out pairs, the pictures are learnt by heart.",
        "A mean over steps during which the model changes.",
        "mean over steps",
        0,
        INFINITY,
        direction="lower is better",
    ),
    _number(
        "temperature",
        "Temperature",
        "What cosines are divided by in the loss; it is trained with the rest unless the arm fixes it.",
        "Lower counts near captions more against far ones; that it keeps modalities apart is disputed.",
        "It moves with the learning rate and its bounds, .01 to 1, as much as with the data.",
        "1/exp(logit_scale)",
        0.01,
        1,
    ),
    _number(
        "accuracy",
        "Accuracy of the classifier",
        "The share of held-out pictures, or captions, whose class has the highest score of the trained linear layer.",
        "1 is right on all; the classes that are not trained count as errors.",
        "Of captions it is easy: they name the class.",
        "right examples / examples",
        0,
        1,
        direction="higher is better",
        reference=CLUSTERS,
    ),
    _number(
        "change",
        "Change over the training",
        "A measure in the last state less that in the first.",
        "Its sign says which way the training moves the geometry.",
        "One run with one seed: no error is known.",
        "last state − first state",
        -INFINITY,
        INFINITY,
        reference=CLUSTERS,
    ),
    _number(
        "pearson",
        "Correlation of two measures over the training",
        "Pearson's correlation of two measures over the recorded states.",
        "Near −1 the one falls as the other rises.",
        "States follow each other: two curves that both drift correlate whatever they are of, and half of the "
        "recorded states lie in the first steps.",
        "corr(x, y) over states",
        -1,
        1,
        reference=CLUSTERS,
    ),
    _number(
        "spearman",
        "Rank correlation of two measures over the training",
        "Spearman's correlation of two measures over the recorded states.",
        "±1 where they always move together, whatever the shape.",
        "As for Pearson's.",
        "corr(rank x, rank y) over states",
        -1,
        1,
        reference=CLUSTERS,
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}
