-- The holders and waiters of locks, and the record of the last forced release.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock
-- ARGV[2] how many waiters to show     ARGV[3] how many holders to show
-- Returns the first argument, and for each lock
-- {kind and limit, number of holders, holders, number of waiters, waiters, record} or an error.
-- A holder is {owner, permits, entries, fence, µs left, client, note}, a waiter
-- {entry, permits, since, client, note}; the kind is "" for a lock without holders and waiters.
local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

local function row(lock, h)
  local _, entries = without(h.entries, '')
  return { h.owner, h.permits, entries, h.fence, h.ends - lock.time, h.client, h.note }
end

local function holders(lock)
  if lock.single then
    return lock.holder and { row(lock, lock.holder) } or {}
  end
  local list, texts = holders_between(lock, 1, math.min(tonumber(ARGV[3]), lock.count))
  local rows = {}
  for at, owner in ipairs(list) do
    if texts[at] then
      rows[#rows + 1] = row(lock, parse_holder(lock, owner, texts[at]))
    end
  end
  return rows
end

local function waiters(lock)
  local rows, most = {}, tonumber(ARGV[2])
  local last = math.min(lock.first + WORK_LIMIT - 1, lock.ticket)
  if lock.waiting == 0 or lock.first > last then
    return rows
  end
  for _, text in ipairs(redis.call('HMGET', lock.key, unpack(numbered('q', lock.first, last)))) do
    local w = text and #rows < most and read_waiter(0, text)
    if w then
      rows[#rows + 1] = { w.entry, w.permits, w.since, w.client, w.note }
    end
  end
  return rows
end

local function inspect(key)
  local lock, wrong = open(key)
  if wrong then
    return wrong
  end
  settle(lock)
  close(lock)
  local kind, holding = is_idle(lock) and '' or lock.kind, lock.holder and 1 or lock.count
  return { kind, holding, holders(lock), lock.waiting, waiters(lock), lock.record or '' }
end

for i, key in ipairs(KEYS) do
  local is_done, result = pcall(inspect, key)
  results[i + 1] = is_done and result or { err = string.sub(failure(result), 2) }
end
return results
