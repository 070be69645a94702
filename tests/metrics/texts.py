"""Texts that several tests measure."""

from typing import Final

PIER: Final = "The new pier was opened in September 2019. It was designed by Anna Berg and is 120 metres long."
MUSEUM: Final = "The museum of the city shows paintings of the sea. Its entrance is free on Sundays."
QUERY: Final = "Who designed the new pier ?"

RESPONSES: Final = {
    "verbatim": "It was designed by Anna Berg and is 120 metres long.",
    "paraphrase": "Anna Berg is the architect of the pier, which opened in autumn 2019.",
    "wrong number": "The new pier was opened in September 2017.",
    "wrong name": "It was designed by Zaha Hadid and is 120 metres long.",
    "unrelated": "Bananas are yellow fruit that grow in warm countries.",
    "half": "The new pier was opened in September 2019. Bananas are yellow fruit.",
    "two passages": "The pier was opened in 2019 and the museum is free on Sundays.",
}
