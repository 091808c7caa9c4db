"""Where a pattern is tried: at its words alone, with what a search of the whole text finds."""

import re

import pytest

from cudabench.toolchain import places, preprocess, tokens

TEXT = "struct S { int a; }; mystruct T {}; class U {} ; struct class V {}; typedef struct W; struct\nX{};"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"\bstruct\s+(\w+)", ("struct",)),
        (r"\b(?:struct|class)\s+(\w+)\s*\{", ("struct", "class")),
        (r"\b(?:class|struct|typedef)\b[^;]*;", ("typedef", "struct", "class")),
        (r"\bunion\b", ("union",)),
    ],
)
def test_matches_are_those_of_a_search(pattern, words):
    """Matches are found in order, none within another, and none that begins within a word."""
    whole = [match.span() for match in re.finditer(pattern, TEXT)]
    compiled = re.compile(pattern)
    assert [match.span() for match in places.matches(compiled, TEXT, *words)] == whole
    first = places.first(compiled, TEXT, *words)
    assert (first and first.span()) == (whole[0] if whole else None)


@pytest.mark.parametrize(
    "source",
    [
        "a && b->c == 1'000 :: x >>= 2 ;\n#define JOIN(a, b) a##b\nJOIN(L, \"text with  blanks // no comment\") 'c';",
        'const char *raw = R"(a\n# b "c" /* d */)"; x;',
        "#define HASH #\nHASH pragma\nx;",
        "#define SLASH /\nSLASH/ no comment\nx; /* gone */ y // gone\n;",
        "it's; not \"closed\nx;",
        "",
    ],
)
def test_a_text_that_was_put_together_is_cut_as_any_other(monkeypatch, source):
    """The preprocessor's words are the tokens of its text, whatever stands beside them."""
    monkeypatch.setattr(tokens, "_LARGE", -1)
    text = preprocess.expand(source, "k.cu", {})
    assert text in tokens._put_together
    known = tokens._lexed.__wrapped__(text)
    assert text not in tokens._put_together
    assert known == tokens._lexed.__wrapped__(text) == tokens._cut(text)
