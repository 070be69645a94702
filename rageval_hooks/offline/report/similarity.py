"""How similar repeated answers to one question are: ROUGE, by the package rouge-score, and BERTScore.

BERTScore (arXiv 1904.09675) is the similarity of two texts, from the best matches between the tokens of an encoder.
This module does not use the package ``bert-score``. Its last release (0.3.13) fails on an empty text with transformers
5, warns with pandas 3 when it rescales, truncates long texts silently, and takes any local folder with "t5" in its path
for a T5. A test compares both if the package is installed: the numbers are the same.

For texts x and y with token vectors of one layer, scaled to length 1:

- P = mean over the tokens of y of their best cosine with a token of x; R likewise the other way round;
  the special tokens at the start and end of every text can be matched, but are not counted;
- F1 = 2 P R / (P + R), 0 where that is not defined;
- rescaled: (F1 - b) / (1 - b), where b is the F1 of unrelated sentences with this model, layer and language.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.models.pytorch import limit_threads, quiet_transformers
from rageval_hooks.models.sources import find_model, loading
from rageval_hooks.offline.report.scored_file import ScoredFile
from rageval_hooks.offline.report.statistics import Resampling, Spread, spread
from rageval_hooks.offline.rouge import ROUGE, rouge_pairs
from rageval_hooks.runtime.jsonable import Data

# The default encoder: the layer whose tokens agree best with human judgements, and the F1 of unrelated English
# sentences, as the authors of the method publish them.
_MODEL, _LAYER, _ENGLISH_BASELINE = "xlm-roberta-large", 17, 0.8525485


class Similarity(Data):
    """How similar answers are by one measure: the mean over all pairs of a question's answers, then over questions.

    Attributes:
        name: the measure: ``rouge1``, ``rouge2``, ``rougeL`` (F1), ``bertscore``.
        spread: over the questions; None if no question has two answers that can be compared.
        left_out: questions that do not have two such answers.
        reason: why there is no number.
        model: the encoder of BERTScore.
    """

    name: str
    spread: Spread | None = None
    left_out: int = 0
    reason: str = ""
    model: str | None = None


class BertScore:
    """Compares texts.

    Args:
        model: an encoder of transformers.
        tokenizer: its tokenizer.
        layers: the layer whose vectors are compared; 0 is the embeddings.
        baseline: F1 of unrelated sentences; None for no rescaling.
        name: the name of the model, which the scores state.

    Raises:
        ConfigurationError: the model has no such layer.
    """

    def __init__(self, model: Any, tokenizer: Any, layers: int, baseline: float | None, name: str) -> None:
        deepest = int(model.config.num_hidden_layers)
        if not 0 <= layers <= deepest:
            raise ConfigurationError(f"layers={layers}: {name} has layers 0 to {deepest}")
        self._model = model
        self._tokenizer = tokenizer
        self._layers = layers
        # The number of tokens that the model can read. RoBERTa's positions begin after that of padding.
        positions = int(getattr(model.config, "max_position_embeddings", 512))
        positions -= 2 if "roberta" in str(model.config.model_type) else 0
        self._limit = min(positions, int(tokenizer.model_max_length))
        self.baseline = baseline
        self.name = f"{name}, layer {layers}{'' if baseline is None else ', rescaled'}"

    def pairs(self, answers: Sequence[str]) -> list[float]:
        """Return the F1 of the pairs (1, 2), (1, 3) … (2, 3) … of the answers that have words.

        It is rescaled if there is a baseline. The order of two answers does not matter.
        """
        # One text at a time: padding a batch would change the last digits, depending on the other texts.
        encoded = [found for found in map(self._encode, answers) if found is not None]
        return [self._f1(*one, *other) for one, other in combinations(encoded, 2)]

    def _encode(self, text: str) -> tuple[Any, Any] | None:
        """Return the unit vectors of a text's tokens, and which of them count; None if it has none."""
        import torch

        limit_threads()
        tokenizer = self._tokenizer
        ids = tokenizer(text.strip(), truncation=True, max_length=self._limit)["input_ids"]
        counts = torch.tensor([token not in (tokenizer.cls_token_id, tokenizer.sep_token_id) for token in ids])
        if not counts.any():
            return None
        with torch.inference_mode():
            inputs = torch.tensor([ids], device=self._model.device)
            output = self._model(inputs, attention_mask=torch.ones_like(inputs), output_hidden_states=True)
            vectors = output.hidden_states[self._layers][0].float().cpu()
        return vectors / vectors.norm(dim=-1, keepdim=True), counts

    def _f1(self, one: Any, one_counts: Any, other: Any, other_counts: Any) -> float:
        cosines = one @ other.T
        precision = float(cosines.max(dim=0).values[other_counts].mean())
        recall = float(cosines.max(dim=1).values[one_counts].mean())
        value = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return value if self.baseline is None else (value - self.baseline) / (1 - self.baseline)


def load_bertscore(
    model: str | None, layers: int | None = None, language: str = "en", rescale: bool = True
) -> BertScore | None:
    """Load an encoder, from this machine or from the hub.

    Args:
        model: a model name on the Hugging Face Hub, or a folder; a folder named ``xlm-roberta-large`` holds that model.
            None for no encoder.
        layers: the layer whose vectors are compared; None for that of xlm-roberta-large.
        language: language of the texts. The baseline of English is known.
        rescale: rescale if the baseline is known. The name of the model that the scores state tells whether it was.

    Raises:
        ConfigurationError: ``layers`` is missing for another model, or the model has no such layer.
        ModelUnavailableError: the model cannot be loaded.
    """
    if model is None:
        return None
    is_default = Path(model).name == _MODEL
    if layers is None:
        if not is_default:
            raise ConfigurationError(f"layers is required for {model}: give the layer to compare")
        layers = _LAYER
    has_baseline = rescale and is_default and (layers, language) == (_LAYER, "en")
    with loading("bertscore", model), requires("transformers", "torch", "BERTScore"):
        from transformers import AutoModel, AutoTokenizer
    folder = find_model("bertscore", model, download=True)
    with loading("bertscore", model), quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        encoder = AutoModel.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return BertScore(encoder.eval(), tokenizer, layers, _ENGLISH_BASELINE if has_baseline else None, model)


def compare_answers(file: ScoredFile, how: Resampling, scorer: BertScore | None = None) -> tuple[Similarity, ...]:
    """Compare the answers to each question of a file that has several.

    Args:
        file: the file.
        how: seed, resamples, level.
        scorer: for BERTScore; None omits it.
    """
    # The rows of each question, by its number.
    rows = np.split(np.argsort(file.questions, kind="stable"), np.cumsum(np.bincount(file.questions))[:-1])
    repeated = [numbers.tolist() for numbers in rows if len(numbers) > 1]
    values: dict[str, list[float]] = {name: [] for name in (*ROUGE, *(["bertscore"] if scorer else []))}
    for numbers in repeated:
        turns = [file.record(row).turn for row in numbers]
        # A failed turn may have half an answer, which would look like an inconsistent one.
        answers = [turn.response for turn in turns if turn.status == "ok"]
        overlaps = rouge_pairs(answers)
        for name in ROUGE if overlaps else ():
            values[name].append(statistics.fmean(overlap[name] for overlap in overlaps))
        if scorer is not None and (found := scorer.pairs(answers)):
            values["bertscore"].append(statistics.fmean(found))
    return tuple(
        Similarity(
            name=name,
            # Each question has one value of equal weight.
            spread=spread(np.array(found), np.ones(len(found)), np.arange(len(found)), how) if found else None,
            left_out=len(repeated) - len(found),
            reason="" if found else "no question has two answers with words",
            model=scorer.name if scorer and name == "bertscore" else None,
        )
        for name, found in values.items()
    )
