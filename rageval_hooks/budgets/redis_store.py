"""Counts of a budget in Redis, for the processes of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from rageval_hooks.budgets.errors import BudgetUnavailableError
from rageval_hooks.budgets.limits import Limit
from rageval_hooks.budgets.store import Amounts, Refusal, Reserved
from rageval_hooks.errors import ConfigurationError, requires

if TYPE_CHECKING:
    import redis

__all__ = ["RedisBudget"]

_KEY = "rageval:judge-budget"
_TIMEOUT = 2.0

# The time is that of the server: the clocks of the hosts need not agree. Scripts run without interruption.
# A later period than now means that the server's clock went back: what was used then counts for this one.
_USED = """
local now = redis.call('TIME')
local seconds = tonumber(now[1])
local function stored(name, field)
  return tonumber(redis.call('HGET', KEYS[1], name .. ':' .. field) or '-1')
end
local function used(name, window)
  local period = stored(name, 'period')
  if period > window then redis.call('HSET', KEYS[1], name .. ':period', window) end
  if period >= window then return math.max(0, stored(name, 'used')) end
  return 0
end
local function write(name, window, amount)
  redis.call('HSET', KEYS[1], name .. ':period', window, name .. ':used', string.format('%.9f', amount))
end
"""
# ARGV: for each limit its name, its period in seconds, its amount, and what the call uses.
_RESERVE = (
    _USED
    + """
local after, answer = {}, {'ok'}
for i = 1, #ARGV, 4 do
  local period, limit, amount = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local before = used(ARGV[i], math.floor(seconds / period))
  if before >= limit or before + amount > limit then
    return {'refused', tostring((i - 1) / 4), tostring(period - seconds % period)}
  end
  after[i] = before + amount
end
for i = 1, #ARGV, 4 do
  local window = math.floor(seconds / tonumber(ARGV[i + 1]))
  write(ARGV[i], window, after[i])
  table.insert(answer, tostring(window))
  table.insert(answer, string.format('%.9f', after[i]))
end
return answer
"""
)
# ARGV: for each limit its name, its period in seconds, the period in which the call was counted, and the change.
_CORRECT = (
    _USED
    + """
local answer = {}
for i = 1, #ARGV, 4 do
  local window, change = math.floor(seconds / tonumber(ARGV[i + 1])), tonumber(ARGV[i + 3])
  local before = used(ARGV[i], window)
  if stored(ARGV[i], 'period') ~= tonumber(ARGV[i + 2]) then change = math.max(0, change) end
  local after = math.max(0, before + change)
  write(ARGV[i], window, after)
  table.insert(answer, string.format('%.9f', after))
end
return answer
"""
)


class RedisBudget:
    """Counts in one hash of a Redis database; see :class:`BudgetStore`.

    Processes that use the same database share the budget.

    Args:
        url: such as ``redis://host:6379/0``. It may hold a password, and is never shown.

    Raises:
        MissingDependencyError: the package redis is not installed.
        ConfigurationError: the URL is wrong.
    """

    kind = "redis"

    def __init__(self, url: str) -> None:
        with requires("redis", "redis", "a judge_budget_store in Redis"):
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        self._error = redis.RedisError
        try:
            self._client: redis.Redis = redis.Redis.from_url(
                url,
                decode_responses=True,
                socket_connect_timeout=_TIMEOUT,
                socket_timeout=_TIMEOUT,
                retry=Retry(NoBackoff(), 0),
            )
            place = urlsplit(url)
            self._place = f"{place.hostname}:{place.port or 6379}"
        except ValueError:
            raise ConfigurationError(
                "judge_budget_store is not a Redis URL such as redis://host:6379/0 (not shown: it may hold a password)"
            ) from None

    def __str__(self) -> str:
        """Return host and port."""
        return self._place

    def reserve(self, limits: Sequence[Limit], amounts: Amounts) -> Reserved | Refusal:
        """Count a call in advance, if it fits into all limits."""
        values = [value for limit in limits for value in (*_limit(limit), limit.amount, amounts[limit.unit])]
        answer = self._run(_RESERVE, values)
        if answer[0] == "refused":
            return Refusal(limits[int(float(answer[1]))], float(answer[2]))
        return Reserved(tuple(int(float(text)) for text in answer[1::2]), tuple(map(float, answer[2::2])))

    def correct(self, limits: Sequence[Limit], windows: Sequence[int], changes: Amounts) -> tuple[float, ...]:
        """Replace what was counted in advance by what was used."""
        pairs = zip(limits, windows, strict=True)
        values = [value for limit, window in pairs for value in (*_limit(limit), window, changes[limit.unit])]
        return tuple(map(float, self._run(_CORRECT, values)))

    def _run(self, script: str, values: list[str | int | float]) -> list[str]:
        try:
            return cast("list[str]", cast("Any", self._client).eval(script, 1, _KEY, *values))
        except (self._error, OSError) as error:
            # The message of a client may quote the URL with its password.
            kind = type(error).__name__
            raise BudgetUnavailableError(f"the judge's budget in Redis ({self}) cannot be used: {kind}") from None


def _limit(limit: Limit) -> tuple[str, int]:
    return limit.name, limit.seconds
