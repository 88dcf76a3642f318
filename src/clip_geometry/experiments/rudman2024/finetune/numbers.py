"""What the fine-tuning experiment says beyond the measures: performance, and how it goes with isotropy."""

from clip_geometry.experiments.kit.explained import INFINITY, explainer

SOURCE = "Rudman & Eickhoff 2024, arXiv:2305.19358"
GLUE = "Wang et al. 2018, arXiv:1804.07461"
SQUAD = "Rajpurkar et al. 2016, arXiv:1606.05250"


_number = explainer("finetune", reference=SOURCE, group="training")


BETTER = {"direction": "higher is better"}
FEW = "A validation set of n examples leaves about √(p(1 − p)/n), which for small tasks is more than methods differ by."
NUMBERS = (
    _number(
        "performance",
        "Performance on validation examples",
        "What the task is judged by: accuracy, of cola Matthews' correlation, of stsb Pearson's, of squad F1.",
        "Beside that of the method `none`: what a penalty on isotropy costs or brings.",
        FEW,
        "named in `at.metric`",
        -1,
        1,
        **BETTER,
    ),
    _number(
        "accuracy",
        "Accuracy",
        "The share of validation examples whose class has the highest score.",
        "At the share of the largest class nothing is learnt.",
        FEW,
        "right examples / examples",
        0,
        1,
        **BETTER,
        reference=GLUE,
    ),
    _number(
        "f1",
        "F1",
        "Of paraphrases and duplicates, of the class that says so; of SQuAD the overlap of predicted and true words.",
        "1 where all that is found is right and all that is right is found.",
        "Of a class it can be high for answering it always: .81 on mrpc.",
        "2 precision · recall / (precision + recall)",
        0,
        1,
        **BETTER,
        reference=f"{GLUE}; {SQUAD}",
    ),
    _number(
        "matthews",
        "Matthews' correlation",
        "The correlation of true and predicted class of two.",
        "0 for an answer that does not depend on the sentence, however frequent the class.",
        "Undefined where one class only is predicted; it is 0 then.",
        "(TP·TN − FP·FN)/√((TP+FP)(TP+FN)(TN+FP)(TN+FN))",
        -1,
        1,
        **BETTER,
        reference=GLUE,
    ),
    _number(
        "score_pearson",
        "Pearson correlation with the true score",
        "How far predicted and true similarity of pairs lie on one line.",
        "1: they do; their scale does not matter.",
        "Not defined where all predictions are equal.",
        "cov(p, t)/(σ_p σ_t)",
        -1,
        1,
        **BETTER,
        reference=GLUE,
    ),
    _number(
        "exact_match",
        "Exact match",
        "The share of questions whose predicted span is an accepted answer, but for case, punctuation and articles.",
        "Below F1, which gives credit for a part.",
        "Passages are cut into windows; the best span of any is taken.",
        "mean of [normalised prediction ∈ normalised answers]",
        0,
        1,
        **BETTER,
        reference=SQUAD,
    ),
    _number(
        "loss",
        "Loss of the task",
        "The mean loss over the steps of the last epoch, without what a method adds.",
        "Far below that of validation: learnt by heart.",
        "Taken with dropout and before each update.",
        "−mean log softmax(scores)[label]; of scores squared error; of spans the mean over first and last token",
        0,
        INFINITY,
        direction="lower fits better",
        unit="nats",
    ),
    _number(
        "pearson",
        "Pearson correlation of IsoScore and performance",
        "How far performance is linear in the isotropy of the tokens of all layers, over all λ of I-STAR and seeds.",
        "Below 0: as hidden states become less isotropic, performance rises.",
        "λ moves isotropy far and performance little: with few seeds the sign is chance.",
        "cov(i, p)/(σ_i σ_p) over trainings",
        -1,
        1,
    ),
    _number(
        "spearman",
        "Spearman correlation of IsoScore and performance",
        "How far the order of the trainings by IsoScore is that by performance.",
        "Below 0: the less isotropic, the better.",
        "As the Pearson correlation: with few seeds the sign is chance.",
        "Pearson correlation of the ranks",
        -1,
        1,
    ),
    _number(
        "largest_coordinate",
        "Share of the largest coordinate in the mean",
        "How much of the length of the mean sentence embedding its largest coordinate alone has.",
        "Near 1: an outlier dimension rules the cosines.",
        "Depends on the basis: rotate the rows and it changes.",
        "max_j |μ_j| / ‖μ‖",
        0,
        1,
        direction="lower is more even",
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}
