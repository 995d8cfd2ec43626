-- Take a lock away from its holders, raise its fence, keep a record, and notify them. Upholds I4, I6:
-- everything is written before anything is published, so a server that refuses to write has notified no client.
-- KEYS[1] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock
-- ARGV[2] the owner expected, or ""    ARGV[3] the caller and its reason, for the record
-- ARGV[4] how long the record is kept, ms
-- Returns the first argument, the owners that lost it, 1 if others still hold it (more than one call takes away), and 1
-- if there is more to settle; no owners, and nothing changed, if it is free or not held by the one expected; or an
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
for _, owner in ipairs(ARGV[2] == '' and owners(lock, CHUNK) or { ARGV[2] }) do
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
  -- Write before publishing: a server may refuse to write.
  write_despite_oom(lock)
  make_hash(lock)
  for i, owner in ipairs(taken) do
    -- To all of a cluster: a holder need not be subscribed in the lock's slot, as a waiter is.
    publish_to_all(clients[i], 'lost ' .. owner .. ' ' .. lock.key)
  end
  -- Waiters are served once all holders are removed.
  if not is_rest then
    serve_next(lock)
  end
end
close(lock)
return { ARGV[1], taken, is_rest and 1 or 0, lock.more and 1 or 0 }
