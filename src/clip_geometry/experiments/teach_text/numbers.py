"""What teacher learning says beyond measures and evaluators."""

from clip_geometry.experiments.kit.explained import INFINITY, explainer

SOURCE = "Carlsson et al. 2022, Cross-lingual and Multilingual CLIP, LREC"

_number = explainer("teach_text", reference=SOURCE, group="training", direction="lower is better")

NUMBERS = (
    _number(
        "loss",
        "Loss on held-out captions",
        "The mean squared error of the student's rows to the teacher's, of captions that are not trained on.",
        "0 where every coordinate is the teacher's.",
        "In the unit of the teacher's rows, which are not normalised: compare students of one teacher.",
        "mean over captions and columns of (s − t)²",
        0,
        INFINITY,
    ),
    _number(
        "training_loss",
        "Loss of the training batches",
        "The same on the batches that are trained on, the mean of the steps since the state before.",
        "Far below the loss on held-out captions, captions are learnt by heart.",
        "Some of its texts are class prompts, in the same few words each time.",
        "mean over steps",
        0,
        INFINITY,
    ),
    _number(
        "unexplained",
        "Variance of the teacher that the student leaves",
        "The loss by the variance of the teacher's rows: 1 − R².",
        "1 where the student says nothing beyond the mean row, 0 where it is the teacher.",
        "A few directions of large variance can hide that the others are not learnt.",
        "Σ‖s − t‖² / Σ‖t − t̄‖²",
        0,
        INFINITY,
    ),
    _number(
        "cosine",
        "Cosine of student and teacher",
        "The mean cosine of the student's row of a caption and the teacher's row of what it says in its own language.",
        "1 where directions agree.",
        "In a narrow cone any two rows have a high cosine: read it beside the average cosine of the teacher's rows.",
        "mean over captions of cos(s, t)",
        -1,
        1,
        direction="higher is better",
    ),
    _number(
        "share",
        "Zero-shot accuracy by that of the teacher",
        "Accuracy by prompts of a language through the student, divided by that of the teacher's own prompts through "
        "the teacher, on the same pictures through the same image tower.",
        "1 where nothing is lost.",
        "Of seen classes both were trained with these very prompts; what carries over is seen on held-out classes.",
        "accuracy of the student / accuracy of the teacher",
        0,
        INFINITY,
        direction="higher is better",
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}
