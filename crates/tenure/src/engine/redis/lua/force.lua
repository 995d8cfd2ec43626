-- Take a lock away from its holders, raise its fence, keep a record, and tell them. Upholds I4, I6:
-- all is written before anything is told, so a server that refuses to write has told nothing.
-- KEYS[1] lock
-- ARGV[1] "nonce client retention": who asks, and for how many ms a fence outlives its lock
-- ARGV[2] the owner expected, or ""    ARGV[3] who does it and why, for the record
-- ARGV[4] how long the record is kept, ms
-- Returns the first argument, the owners that held it, 1 if others still do, more than one call takes away, and 1
-- if there is more to settle: none, and nothing is changed, if nobody does or not the one expected; or an
-- error.
local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

--@ lock.lua

local lock, wrong = open(KEYS[1])
if wrong then
  return { ARGV[1], wrong }
end
settle(lock)
local taken, clients = {}, {}
for _, owner in ipairs(ARGV[2] == '' and owners(lock, SOME) or { ARGV[2] }) do
  local holder = find(lock, owner)
  if holder then
    remove(lock, owner)
    taken[#taken + 1], clients[#clients + 1] = owner, holder.client
  end
end
local is_rest = ARGV[2] == '' and #owners(lock, 1) > 0
if #taken > 0 then
  next_fence(lock, 1)
  local record = plain(now) .. ' ' .. table.concat(taken, ',') .. ' ' .. ARGV[3]
  lock.record, lock.till = record, lock.time + ARGV[4] * 1000
  -- Something is written before anything is told: a server may refuse to write.
  go_on_without_memory(lock)
  spread(lock)
  for i, owner in ipairs(taken) do
    redis.call('PUBLISH', CHANNEL .. clients[i], 'lost ' .. owner .. ' ' .. lock.key)
  end
  -- What is free goes to those who wait, when all of it is.
  if not is_rest then
    pass_on(lock)
  end
end
close(lock)
return { ARGV[1], taken, is_rest and 1 or 0, lock.more and 1 or 0 }
