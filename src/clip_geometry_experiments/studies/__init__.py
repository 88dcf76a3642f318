"""Our own questions: trainings, distillation, repairs and modality gaps."""
