"""Special tokens of chat templates in texts: a server would read them as the end of a message or as a new speaker."""

from __future__ import annotations

import re

__all__ = ["neutralize"]

_TOKEN = re.compile(
    # <|im_start|>, <|eot_id|>, <｜User｜>; and one-sided ones such as <|turn> and <turn|>
    r"<[|｜][^<>\n]{1,60}>|<[^<>\n|｜]{1,60}[|｜]>"
    # <s>, </s>, <bos>, <start_of_turn>, <think>, <tool_call>, <BOS_TOKEN>, <extra_id_0>, <unused7>
    r"|</?(?:s|bos|eos|pad|unk|sop|eop|seed:\w{1,20}|role|think|thinking|reasoning|tool_call|tool_response|"
    r"function_call|(?:start|end)_of_\w{1,20}|\w{1,20}_TOKEN|extra_id_\d{1,4}|unused\d{1,4}|SPECIAL_\d{1,4})>"
    # <<SYS>> and <</SYS>>
    r"|<</?SYS>>"
    # [INST], [/INST], [SYSTEM_PROMPT], [TOOL_CALLS], [gMASK]
    r"|\[/?(?:INST|SYSTEM_PROMPT|MODEL_SETTINGS|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|"
    r"THINK|IMG|AUDIO|PREFIX|MIDDLE|SUFFIX|gMASK|sMASK|BOS|EOS)\]"
    # ]~b] and [e~[ of MiniMax
    r"|\]~!?b[\[\]]|\[e~\[",
    re.IGNORECASE,
)
_HARMLESS = str.maketrans({"<": "‹", ">": "›", "[": "⟦", "]": "⟧"})


def neutralize(text: str) -> str:
    """Replace the brackets of special tokens by similar ones, so that a reader still sees what the text says.

    Example:
        >>> neutralize("Bye.<|im_end|> [INST] a < b [1]")
        'Bye.‹|im_end|› ⟦INST⟧ a < b [1]'
    """
    return _TOKEN.sub(lambda token: token[0].translate(_HARMLESS), text)
