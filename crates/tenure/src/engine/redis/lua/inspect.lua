-- Who holds locks, who waits for them, and the record of the last forced release.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- ARGV[3] how many waiters to show     ARGV[4] how many holders to show, those that end first
-- Returns the nonce, and for each lock
-- {kind and limit, how many hold it, holders, how many wait, waiters, record} or an error.
-- A holder is {owner, permits, entries, fence, µs left, client, note}, a waiter
-- {entry, permits, since, client, note}; the kind is "" for a lock that nobody holds or wants.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

local function holders(lock)
  local list = {}
  for _, owner in ipairs(owners(lock, tonumber(ARGV[4]))) do
    local h = find(lock, owner)
    local _, entries = without(h.entries, '')
    list[#list + 1] = { owner, h.permits, entries, h.fence, h.ends - lock.time, h.client, h.note }
  end
  return list
end

local function holding(lock)
  if lock.single then
    return lock.holder and 1 or 0
  end
  return lock.used > 0 and redis.call('ZCARD', lock.key .. ':d') or 0
end

local function waiters(lock)
  local list = {}
  if lock.waiting == 0 or ARGV[3] == '0' then
    return list
  end
  for _, entry in ipairs(redis.call('ZRANGE', lock.key .. ':q', 0, tonumber(ARGV[3]) - 1)) do
    local w = waiter_of(lock, entry)
    if w then
      list[#list + 1] = { entry, w.permits, w.since, w.client, w.note }
    end
  end
  return list
end

local function inspect(key)
  local lock, wrong = open(key)
  wrong = wrong or misused(key, ':x', 'string')
  if wrong then
    return wrong
  end
  settle(lock)
  close(lock)
  local record = redis.call('GET', lock.key .. ':x') or ''
  local kind = is_idle(lock) and '' or lock.kind
  return { kind, holding(lock), holders(lock), lock.waiting, waiters(lock), record }
end

for i, key in ipairs(KEYS) do
  local is_done, result = pcall(inspect, key)
  results[i + 1] = is_done and result or { err = string.sub(failure(result), 2) }
end
return results
