#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/cases: tokenizers of fifteen kinds, and what PyPI `tokenizers` makes of a few hundred texts.

make_cases.py FOLDER            writes FOLDER/KIND.json, one tokenizer.json each, and FOLDER/cases.jsonl
make_cases.py --tokenizers FOLDER --train FILE... [--vocab N]
                                writes the tokenizers alone, trained on FILEs (for check_with_tokenizers.py)

A line of cases.jsonl: {"tokenizer": KIND, "text": ..., "ids": [...], "special": [...], "decoded": ..., "skipped": ...}
where special has the ids with the post-processor's tokens (left out: ids), decoded the text of special (left out: text),
skipped that without special tokens (left out: decoded). The first line names the version of `tokenizers`. Needs `pip install tokenizers sentencepiece
protobuf`; the tests do not.
"""
import argparse
import io
import json
import pathlib
import random
import tempfile

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, implementations, models, normalizers, pre_tokenizers,
                        processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")

SENTENCES = r"""
The quick brown fox doesn't jump over the lazy dog; they'd rather sleep, wouldn't they? I'll say it's 3.14159 again.
Ein Satz über Äpfel, Öl und Übergrößen: Straßenfußball macht Spaß, sagt der große Jäger am 24. Dezember 2025.
Le cœur a ses raisons que la raison ne connaît point; l'été, naïvement, s'achève à l'île d'Oléron.
Съешь же ещё этих мягких французских булок, да выпей чаю. В 1812 году всё было иначе.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。カタカナもある。
所有的人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وُهبوا عقلاً وضميراً.
คนเราทุกคนเกิดมาอย่างอิสระ เราทุกคนมีความคิดและความเข้าใจเป็นของเราเอง
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.
int main(int argc, char** argv) {\n\tfor (int i = 0; i < 10; ++i) {\n\t\tprintf("%d ", i);\n\t}\n    return 0;\n}
def f(x: float) -> float:\n    'Doc.'\n    return x ** 2 if x >= 0.5 else -x  # comment\n
<html><body class="a b">&nbsp;&#160;<p>Text</p></body></html> https://example.org/path?q=1&r=2#frag user@host.net
""".strip().split("\n")

ODD = ["", " ", "  ", "   a", "a ", "a  ", "a   b", "\n", "\n\n", "a\nb", "a \nb", "a\n b", "a\n\n\nb", "a \n \n b", "\r\n",
       "a\r\nb", "\ta", "a\tb", " \t \n x", "\u00a0", "a\u00a0b", "\u3000\u3000x", "\u2028x\u2029", "\x85y", "\x0b\x0c z",
       "'s", "it's", "IT'S", "it'\u017f", "we'Re we'LL I'D i'm they've'", "''''s", "x'y", "'", "'rest", " 'tis", "12", "123",
       "1234567", " 12 345", "½ ⅓ ² ③ Ⅷ 五", "٣٤٥ १२३ ៤៥", "a1b22c333d4444", "...", "!!!\n\n", "?!\r\n?", " ?\n", "-- --- ----",
       "x=1;y+=2", "é", "e\u0301", "e\u0323\u0301", "e\u0301\u0323", "ﬁ ﬂ ſ ß ẞ İ ı", "Å \u212b A\u030a", "각 \u1100\u1161\u11a8",
       "が か\u3099 ｶﾞ", "ｆｕｌｌ　ｗｉｄｔｈ １２３", "\u0958 \u0915\u093c", "ཧཱུྃ \u0f73", "😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵", "\U00020000\U0002fa1d",
       "\u200b\u200d\ufeff", "\u0000\u0001\x7f", "\ufffd\uffff\U0010ffff", "\ue000", "Ᲊᲊ \ua7da", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "a\u0300\u0301\u0302\u0303b",
       "ÀÉÎÕÜ àéîõü", "ΑΣ ΑΣ. ὈΔΥΣΣΕΎΣ", "ǅ ǈ Ǳ", "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>",
       "<|endoftext", "<s>a</s>", "</s></s>", "x <mask> y", "x   <mask>   y", "<mask><mask>", "<mask>", "word", "sword", "word.",
       "a word b", "wörd word wordy", "WORD Word", "▁", "▁▁a", "a▁b", " ▁ a", "a▁ b", "<0x41>", "<0x0A>\n", "<unk>", "Hello", "hello",
       "HeLLo", "\n<mask>\n", "tool <tool_call>x</tool_call>", "a" * 60, "ab" * 40, " " * 30, "\n" * 20, "=" * 50, "xyz " * 12,
       "日本語" * 12, "٠" * 9, "e\u0301" * 20, "q" * 300]


# Grapheme clusters of fewer than 6 bytes and of more, for the kinds with Precompiled.
CLUSTERS = ["a\u0301\u0302 e\u0301x", "\u0301a", "\u01c4\u0301 \ufb01\u0301", "\u1100\u1161\u11a8\u11a8 \u1100\uac00\uac01\u1161",
            "\uff76\uff9e \uff8a\uff9f\uff9f", "क्त क्\u200dत क्\u200cत क़्त র্ক ક્ષ", "नि स्त्री \u0958\u0301", "กำ ກຳ", "\u0600١ \u0600\r\n",
            "❤\ufe0f\u200d🔥 ©\u200d® ㊗\ufe0f ™\ufe0f", "🇩🇪🇫 🇩\u0301🇪", "👍🏽 1\ufe0f\u20e3", "\r\n\r\u0301\n\u0301", "\u200d\u200b\u200c\u00adx",
            "\x00\x01\x08 a\x01\u0301", "\u00a0\u00a0 x\u3000\u0301 \u2003", "½\u0301 ⅓a ﷺ ㍿ ㌔ …‥", "ﬃ\u200d Ĳ ŉ", "\u0344\u0345 \u1fee ΅",
            "``a'' Ä\u0308 ǰ ΐ", "\u2028\ufeffa\ufeff", "\U00016d63\U00016d67 \U0001f1ae\u200d❤"]


def train(tokenizer, texts, vocab, special, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, initial_alphabet=sorted(alphabet),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(texts, vocab, special, split=None, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    tokenizer.pre_tokenizer = level if split is None else pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, texts, vocab, special, pre_tokenizers.ByteLevel.alphabet())


def changed(tokenizer, change):
    """The tokenizer after a change of its JSON."""
    value = json.loads(tokenizer.to_str())
    change(value)
    return Tokenizer.from_str(json.dumps(value))


def gpt2(texts, vocab):
    tokenizer = byte_level(texts, vocab, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3(texts, vocab):
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer = byte_level(texts, vocab, [], split)
    tokenizer = changed(tokenizer, lambda value: value["model"].update(ignore_merges=True))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def qwen2(texts, vocab):
    tokenizer = byte_level(texts, vocab, [], pre_tokenizers.Split(Regex(QWEN2), "isolated"), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False, special=False)])
    tokenizer.add_tokens([AddedToken("</tool_call>", normalized=False, special=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def qwen35(texts, vocab):
    """Marks belong to the letters before them."""
    tokenizer = byte_level(texts, vocab, [], pre_tokenizers.Split(Regex(QWEN35), "isolated"), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def smol(texts, vocab):
    """Digits before GPT-2's words, as SmolLM; and added tokens of every kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, texts, vocab, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("word", single_word=True), AddedToken("  ", normalized=True)])
    return tokenizer


def sentencepiece_bpe(texts, vocab):
    """A BPE of SentencePiece's kind with bytes as a fallback; no chain around it yet."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    fallback = ["<0x%02X>" % byte for byte in range(256)]
    texts = ["".join(c for c in text if ord(c) < 0x250 or c == "▁") for text in texts]
    train(tokenizer, texts, vocab, special + fallback, ["▁"])

    def change(value):
        value["added_tokens"] = [token for token in value["added_tokens"] if token["content"] in special]
        value["model"].update(byte_fallback=True, fuse_unk=True)
        value["pre_tokenizer"] = None
    return changed(tokenizer, change)


def begin_template(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])


def llama2(texts, vocab):
    tokenizer = sentencepiece_bpe(texts, vocab)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    begin_template(tokenizer)
    return tokenizer


def mistral(texts, vocab):
    tokenizer = sentencepiece_bpe(texts, vocab)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    begin_template(tokenizer)
    return tokenizer


def gemma(texts, vocab):
    tokenizer = sentencepiece_bpe(texts, vocab)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    begin_template(tokenizer)
    return tokenizer


def unigram(texts, vocab, fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    if fallback:
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Strip(), normalizers.NFD(), normalizers.Lowercase(), normalizers.Replace("  ", " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    else:
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"] + (["<0x%02X>" % byte for byte in range(256)] if fallback else [])
    trainer = trainers.UnigramTrainer(vocab_size=vocab, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if fallback:
        def change(value):
            value["added_tokens"] = [token for token in value["added_tokens"] if token["id"] < 3]
            value["model"].update(byte_fallback=True)
        tokenizer = changed(tokenizer, change)
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", end)])
    tokenizer.add_tokens([AddedToken("Hello", normalized=True)])
    return tokenizer


def unigram_bytes(texts, vocab):
    return unigram(texts, vocab, fallback=True)


def unigram_nmt(texts, vocab):
    """The chain that `tokenizers` itself puts around a unigram model of SentencePiece's kind."""
    tokenizer = implementations.SentencePieceUnigramTokenizer()
    tokenizer.train_from_iterator(texts, vocab, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False)
    return Tokenizer.from_str(tokenizer.to_str())


def character_map(**options):
    """The character map that SentencePiece writes into a model."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=written, vocab_size=300,
                                             hard_vocab_limit=False, minloglevel=2, **options)
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


def published_unigram(texts, vocab, normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=vocab, special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
                                      unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                             special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def xlm_roberta(texts, vocab):
    """The character map nmt_nfkc, which T5 and XLM-R have."""
    normalizer = normalizers.Sequence([character_map(), normalizers.Strip(left=False, right=True),
                                       normalizers.Replace(Regex(" {2,}"), "▁")])
    return published_unigram(texts, vocab, normalizer, pre_tokenizers.Metaspace())


def albert(texts, vocab):
    """ALBERT's chain, around a small character map."""
    rules = {"ﬁ": "fi", "ﬃ": "ffi", "e": "3", "ex": "EX", "\x01": "", "\t": " ", "\r": " ", "\n": " ", "½": "1/2", "q": "kw", "ß": "ss",
             "ı": "i", "क\u094d": "K", "日": "day", "日本": "Japan", "❤": "<3", "👍": "+1", "\u1100\u1161": "ga", "\u200d": ""}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for key, value in rules.items():
            file.write("\t".join(" ".join("%X" % ord(c) for c in each) for each in (key, value)) + "\n")
        file.flush()
        small = character_map(normalization_rule_tsv=file.name)
    normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                       normalizers.StripAccents(), normalizers.Lowercase(), small])
    return published_unigram(texts, vocab, normalizer, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                                                pre_tokenizers.Metaspace()]))


def roberta(texts, vocab):
    """The chain that `tokenizers` itself puts around a byte-level BPE, between RoBERTa's two tokens."""
    tokenizer = implementations.ByteLevelBPETokenizer(add_prefix_space=True)
    tokenizer.train_from_iterator(texts, vocab, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False)
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def bert(texts, vocab):
    """BERT's normalizer and post-processor; its model is another one."""
    tokenizer = published_unigram(texts, vocab, normalizers.BertNormalizer(), pre_tokenizers.Metaspace(prepend_scheme="first"))
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


KINDS = {f.__name__: f for f in (gpt2, llama3, qwen2, smol, llama2, mistral, gemma, unigram, unigram_bytes, unigram_nmt,
                                 roberta, xlm_roberta, albert, qwen35, bert)}


def mixed_texts(count):
    """Pieces of all texts, joined anew."""
    rng = random.Random(7)
    pieces = SENTENCES + [odd for odd in ODD if 0 < len(odd) < 40]
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 4)):
            piece = rng.choice(pieces)
            begin = rng.randrange(len(piece))
            parts.append(piece[begin:begin + rng.randint(1, 24)])
        texts.append(rng.choice(["", " ", "\n", "  "]).join(parts))
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizers", action="store_true", help="the tokenizers alone")
    parser.add_argument("--train", nargs="+", type=pathlib.Path, default=[])
    parser.add_argument("--vocab", type=int, default=640)
    arguments = parser.parse_args()
    sentences = [sentence.replace("\\n", "\n").replace("\\t", "\t") for sentence in SENTENCES]
    training = [path.read_text(encoding="utf-8") for path in arguments.train] or sentences * 4
    arguments.folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"tokenizers": tokenizers.__version__})]
    for kind, make in KINDS.items():
        made = make(training, arguments.vocab)
        (arguments.folder / f"{kind}.json").write_text(made.to_str(), encoding="utf-8")
        if arguments.tokenizers:
            continue
        more = CLUSTERS if kind in ("xlm_roberta", "albert", "qwen35", "bert") else []
        for text in sentences + ODD + mixed_texts(24) + more:
            case = {"tokenizer": kind, "text": text, "ids": made.encode(text, add_special_tokens=False).ids}
            special = made.encode(text).ids
            decoded, skipped = made.decode(special, skip_special_tokens=False), made.decode(special)
            case |= {"special": special} if special != case["ids"] else {}
            case |= {"decoded": decoded} if decoded != text else {}
            case |= {"skipped": skipped} if skipped != decoded else {}
            lines.append(json.dumps(case, separators=(",", ":")))
    if not arguments.tokenizers:
        (arguments.folder / "cases.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
