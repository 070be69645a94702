"""Tiny models on disk, for the code that loads real ones: built in a few seconds, always the same."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rageval_hooks.models.bert_graph import GraphKind

__all__ = [
    "MAX_TOKENS",
    "TRAINING_SENTENCES",
    "add_graph",
    "build_cross_encoder",
    "build_encoder",
    "build_grounding",
    "build_hhem",
    "build_nlp",
]

MAX_TOKENS = 64
"""What the tiny cross-encoder reads."""

_WORDS = (
    "the a an of in on by was is are when who what where did do opened open built build pier bridge tower museum new "
    "old city river 2019 answer question engineer designed anna berg how long does it take why because"
).split()


def build_cross_encoder(folder: Path, outputs: int = 1) -> Path:
    """Write a BERT with random weights, a WordPiece vocabulary and a head of so many outputs."""
    heads = {f"LABEL_{number}": number for number in range(outputs)}
    labels = {"id2label": {str(number): name for name, number in heads.items()}, "label2id": heads}
    return _build_bert(folder, "BertForSequenceClassification", "bert.", outputs, **labels)


def build_encoder(folder: Path, layers: int = 2) -> Path:
    """Write a BERT with random weights and no head, and a WordPiece vocabulary."""
    return _build_bert(folder, "BertModel", "", 0, num_hidden_layers=layers)


def add_graph(folder: Path, kind: GraphKind, file: str = "onnx/model.onnx") -> Path:
    """Write the graph of a model in fp32 where the hubs have it, without a process of its own; return the folder."""
    from rageval_hooks.models.export import make_graph

    target = folder / file
    target.parent.mkdir(exist_ok=True)
    make_graph(str(target), folder=str(folder), kind=kind, graph=None, int8=False)
    return folder


def _build_bert(folder: Path, architecture: str, prefix: str, outputs: int, **options: Any) -> Path:
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_word_pieces(folder, options.get("max_position_embeddings", MAX_TOKENS))
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": MAX_TOKENS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        **options,
    }
    (folder / "config.json").write_text(json.dumps(config))
    draw = np.random.default_rng(0)
    weights: dict[str, Any] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        weights[f"{name}.weight"] = draw.normal(0, 0.5, (rows, columns))  # so that the outputs differ
        weights[f"{name}.bias"] = np.zeros(rows)

    def normalization(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(32), np.zeros(32)

    for part, rows in (("word", len(vocabulary)), ("position", config["max_position_embeddings"]), ("token_type", 2)):
        weights[f"{prefix}embeddings.{part}_embeddings.weight"] = draw.normal(0, 0.5, (rows, 32))
    normalization(f"{prefix}embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"{prefix}encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{name}.attention.self.{part}", 32, 32)
        linear(f"{name}.attention.output.dense", 32, 32)
        normalization(f"{name}.attention.output.LayerNorm")
        linear(f"{name}.intermediate.dense", 64, 32)
        linear(f"{name}.output.dense", 32, 64)
        normalization(f"{name}.output.LayerNorm")
    linear(f"{prefix}pooler.dense", 32, 32)
    if outputs:
        linear("classifier", outputs, 32)
    found = {name: value.astype(np.float32) for name, value in weights.items()}
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _write_word_pieces(folder: Path, longest: int) -> list[str]:
    """Write the tokenizer of a BERT that reads so many tokens; return its vocabulary."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    characters = string.ascii_lowercase + string.digits
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *string.punctuation, *characters, *(f"##{character}" for character in characters), *_WORDS]
    vocabulary = list(dict.fromkeys(vocabulary))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, numbers[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    options = {"tokenizer_class": "BertTokenizer", "model_max_length": longest, "do_lower_case": True, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return vocabulary


def build_grounding(folder: Path, kind: str, labels: list[str] | None = None, positions: int = 2048) -> Path:
    """Write a grounding model with random weights, as the hub has them, and a tokenizer of that kind.

    Args:
        folder: where.
        kind: a class of transformers: ``ModernBertForTokenClassification``, or ``…ForSequenceClassification`` of Bert,
            Roberta and DebertaV2, or ``T5ForConditionalGeneration``; all but those of Bert are made with PyTorch.
        labels: the labels of the outputs; None for two without names.
        positions: the most tokens that it reads.
    """
    if kind.startswith("Bert"):
        heads = labels or ["LABEL_0", "LABEL_1"]
        about = {"id2label": dict(enumerate(heads)), "max_position_embeddings": positions}
        return _build_bert(folder, kind, "bert.", len(heads), **about)
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _write_pair_tokenizer(folder, kind)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    # At 0.5 some outputs are 0 or 1, which every wrong input would also give.
    sizes |= {"vocab_size": 512, "initializer_range": 0.25, "max_position_embeddings": positions}
    special: dict[str, Any] = {"pad_token_id": tokenizer.pad_token_id}
    if kind.startswith("Roberta"):
        sizes["max_position_embeddings"] += 2
    if kind.startswith("ModernBert"):
        special |= {"local_attention": 8, "global_attn_every_n_layers": 2, "sep_token_id": 2, "cls_token_id": 1}
        special |= {"bos_token_id": 1, "eos_token_id": 2}
    if kind.startswith("DebertaV2"):
        special |= {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
        special |= {"type_vocab_size": 0, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    if kind.startswith("T5"):
        sizes = {"vocab_size": 512, "d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 2}
        special |= {"initializer_factor": 1.5, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu"}
    if labels:
        special["id2label"] = dict(enumerate(labels))
    model_class = getattr(transformers, kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**sizes, **special))
        for parameter in model.parameters():  # heads that begin with zeros would say the same of every text
            if parameter.ndim > 1 and not kind.startswith("T5"):
                torch.nn.init.normal_(parameter, std=0.25)
    model.save_pretrained(folder)
    return folder


def _write_pair_tokenizer(folder: Path, kind: str) -> Any:
    """Write a tokenizer of bytes that marks texts and pairs as the models of this kind expect."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    pad, begin, end = ("<pad>", "<s>", "</s>") if kind.startswith(("Roberta", "T5")) else ("[PAD]", "[CLS]", "[SEP]")
    # In this order: Roberta's padding is 1, that of the others 0.
    special = [begin, pad, end, "<unk>"] if kind.startswith("Roberta") else [pad, begin, end, "<unk>"]
    # The last ones make 500 of them, as T5's answers are the tokens 3 and 209.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġ{word}" for word in _WORDS]
    vocabulary = {token: index for index, token in enumerate([*special, *letters])}
    merges = []
    for word in words:
        for length in range(2, len(word) + 1):
            pair = (word[: length - 1], word[length - 1])
            if word[:length] not in vocabulary:
                vocabulary[word[:length]] = len(vocabulary)
                merges.append(pair)
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    middle = f"{end} {end}" if kind.startswith("Roberta") else end
    start = "" if kind.startswith("T5") else f"{begin} "
    second = "0" if kind.startswith(("Roberta", "ModernBert")) else "1"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start}$A {end}",
        pair=f"{start}$A {middle} $B:{second} {end}:{second}",
        special_tokens=[(token, vocabulary[token]) for token in (begin, end)],
    )
    names = {"pad_token": pad, "unk_token": "<unk>", "eos_token": end}
    if not kind.startswith("T5"):
        names |= {"bos_token": begin, "cls_token": begin, "sep_token": end}
    inputs = ["input_ids", "attention_mask"]
    if kind.startswith("DebertaV2"):
        inputs.insert(1, "token_type_ids")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    fast.save_pretrained(folder)
    return fast


def build_hhem(folder: Path, tokenizer: Path | None = None) -> Path:
    """Write a T5 of HHEM-2's layout with random weights: its names of weights, its config, its code, its tokenizer.

    Args:
        folder: where.
        tokenizer: where the tokenizer is written; None for the folder of the weights.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import T5Config, T5ForTokenClassification

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_t5_tokenizer((tokenizer or folder) / "tokenizer.json")
    config = T5Config(
        vocab_size=vocabulary + 4,  # as published: a few more rows than tokens
        d_model=32,
        d_kv=12,
        d_ff=48,
        num_layers=3,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        num_labels=2,
        initializer_factor=2.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = T5ForTokenClassification(config)
        torch.nn.init.normal_(model.classifier.weight, std=0.5)  # so that the outputs differ
    weights = {
        f"t5.{key}": value for key, value in model.state_dict().items() if not key.endswith("embed_tokens.weight")
    }
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    published = {
        "architectures": ["HHEMv2ForSequenceClassification"],
        "auto_map": {
            "AutoConfig": "configuration_hhem_v2.HHEMv2Config",
            "AutoModelForSequenceClassification": "modeling_hhem_v2.HHEMv2ForSequenceClassification",
        },
        "model_type": "HHEMv2",
        # The published file has no sizes: they are those of google/flan-t5-base.
        **{
            name: getattr(config, name) for name in ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
        },
    }
    (folder / "config.json").write_text(json.dumps(published))
    for name in ("configuration_hhem_v2.py", "modeling_hhem_v2.py"):
        (folder / name).write_text("raise AssertionError('the code of a model was run')\n")
    return folder


def _write_t5_tokenizer(path: Path) -> int:
    """Write a tokenizer as T5's are, with the prompt's words; return the size of its vocabulary."""
    from tokenizers import Tokenizer, pre_tokenizers, processors
    from tokenizers.models import Unigram

    special = ["<pad>", "</s>", "<unk>"]
    words = [*_WORDS, "Determine", "if", "hypothesis", "true", "given", "premise", "Premise", "Hypothesis"]
    scores = dict.fromkeys(special, 0.0) | {"▁": -3.0}
    scores |= dict.fromkeys(string.ascii_letters + string.digits + string.punctuation, -6.0)
    scores |= {f"▁{word}": -4.0 for word in words}
    tokenizer = Tokenizer(Unigram(list(scores.items()), unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens(special)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


# word/tag/head/dependency/entity; heads are positions in the sentence.
TRAINING_SENTENCES = """
Anna/NNP/1/compound/B-PERSON Berg/NNP/2/nsubj/L-PERSON designed/VBD/2/ROOT/O the/DT/4/det/O bridge/NN/2/dobj/O ././2/punct/O
Carl/NNP/1/compound/B-PERSON Meyer/NNP/2/nsubj/L-PERSON painted/VBD/2/ROOT/O the/DT/5/det/O old/JJ/5/amod/O tower/NN/2/dobj/O ././2/punct/O
Carl/NNP/1/compound/B-PERSON Meyer/NNP/2/nsubj/L-PERSON opened/VBD/2/ROOT/O a/DT/4/det/O museum/NN/2/dobj/O ././2/punct/O
Paris/NNP/1/nsubj/U-GPE opened/VBD/1/ROOT/O a/DT/3/det/O museum/NN/1/dobj/O in/IN/1/prep/O 2019/CD/4/pobj/U-DATE ././1/punct/O
Berlin/NNP/1/nsubj/U-GPE built/VBD/1/ROOT/O the/DT/4/det/O new/JJ/4/amod/O bridge/NN/1/dobj/O in/IN/1/prep/O 1987/CD/5/pobj/U-DATE ././1/punct/O
The/DT/1/det/O pier/NN/3/nsubjpass/O was/VBD/3/auxpass/O opened/VBN/3/ROOT/O in/IN/3/prep/O 2019/CD/4/pobj/U-DATE ././3/punct/O
Who/WP/1/nsubj/O designed/VBD/1/ROOT/O the/DT/4/det/O new/JJ/4/amod/O pier/NN/1/dobj/O ?/./1/punct/O
Who/WP/1/nsubj/O painted/VBD/1/ROOT/O the/DT/3/det/O museum/NN/1/dobj/O ?/./1/punct/O
Explain/VB/0/ROOT/O the/DT/3/det/O old/JJ/3/amod/O tower/NN/0/dobj/O ././0/punct/O
Explain/VB/0/ROOT/O the/DT/2/det/O museum/NN/0/dobj/O ././0/punct/O
""".strip().splitlines()  # noqa: E501

_POS = {
    "NNP": "PROPN", "NN": "NOUN", "VBD": "VERB", "VBN": "VERB", "VB": "VERB", "DT": "DET", "JJ": "ADJ", "IN": "ADP",
    "CD": "NUM", "WP": "PRON", ".": "PUNCT",
}  # fmt: skip


def build_nlp(folder: Path) -> Path:
    """Write an English spaCy pipeline with tagger, parser and entity recogniser, trained on a handful of sentences.

    It knows these by heart, and little else.
    """
    import spacy
    from spacy.training import Example
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    nlp: Any = spacy.blank("en")
    tok2vec = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 32, "depth": 2}
    tok2vec |= {"embed_size": 300, "window_size": 1, "maxout_pieces": 2, "subword_features": True}
    for name, config in (("tagger", {}), ("parser", {"min_action_freq": 1}), ("ner", {})):
        nlp.add_pipe(name, config={"model": {"tok2vec": tok2vec}, **config})
    examples = [Example.from_dict(nlp.make_doc(text), marks) for text, marks in map(_marks, TRAINING_SENTENCES)]
    optimizer = nlp.initialize(lambda: examples)
    order = random.Random(0)
    for _ in range(40):
        order.shuffle(examples)
        nlp.update(examples, sgd=optimizer, drop=0.0)
    ruler = nlp.add_pipe("attribute_ruler", after="tagger")
    for tag, pos in _POS.items():
        ruler.add([[{"TAG": tag}]], {"POS": pos})
    folder.parent.mkdir(parents=True, exist_ok=True)
    nlp.to_disk(folder)
    return folder


def _marks(sentence: str) -> tuple[str, dict[str, Any]]:
    words, tags, heads, dependencies, entities = zip(*(word.rsplit("/", 4) for word in sentence.split()), strict=True)
    marks = {"words": words, "tags": tags, "heads": [int(head) for head in heads], "deps": dependencies}
    return " ".join(words), {**{name: list(values) for name, values in marks.items()}, "entities": list(entities)}
