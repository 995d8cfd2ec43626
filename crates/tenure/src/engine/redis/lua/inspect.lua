-- Who holds locks, who waits for them, and the record of the last forced release.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- ARGV[3] how many waiters to show
-- Returns the nonce, and for each lock {kind and limit, holders, how many wait, waiters, record}
-- or an error. A holder is {owner, permits, entries, fence, µs left, client, note}, a waiter
-- {entry, permits, since, client, note}; the kind is "" for a lock that nobody holds or wants.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

local function holders(lock)
  local list = {}
  for _, owner in ipairs(owners(lock)) do
    local h = find(lock, owner)
    local _, entries = without(h.entries, '')
    list[#list + 1] = { owner, h.permits, entries, h.fence, h.ends - now, h.client, h.note }
  end
  return list
end

local function waiters(lock)
  local list = {}
  if lock.waiting == 0 or ARGV[3] == '0' then
    return list
  end
  for _, entry in ipairs(redis.call('ZRANGE', lock.key .. ':q', 0, tonumber(ARGV[3]) - 1)) do
    local w = waiter_of(lock, entry)
    list[#list + 1] = { entry, w.permits, w.since, w.client, w.note }
  end
  return list
end

for i, key in ipairs(KEYS) do
  local lock, result = open(key)
  local misuse = lock and misused(key, ':x', 'string')
  if misuse then
    lock, result = nil, misuse
  end
  if lock then
    settle(lock)
    close(lock)
    local record = redis.call('GET', lock.key .. ':x') or ''
    result = { is_idle(lock) and '' or lock.kind, holders(lock), lock.waiting, waiters(lock), record }
  end
  results[i + 1] = result
end
return results
