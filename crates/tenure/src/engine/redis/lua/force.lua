-- Take a lock away from its holders, tell them, raise its fence, and keep a record. Upholds I4.
-- KEYS[1] lock
-- ARGV[1] nonce     ARGV[2] client
-- ARGV[3] the owner expected, or ""    ARGV[4] who does it and why, for the record
-- ARGV[5] how long the record is kept, ms
-- Returns the nonce, and the owners that held it: none, and nothing is changed, if nobody does or
-- not the one expected; or an error.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

--@ lock.lua

local lock, wrong = open(KEYS[1])
wrong = wrong or misused(KEYS[1], ':x', 'string')
if wrong then
  return { ARGV[1], wrong }
end
settle(lock)
local taken = {}
for _, owner in ipairs(owners(lock)) do
  if ARGV[3] == '' or ARGV[3] == owner then
    local holder = find(lock, owner)
    remove(lock, owner)
    taken[#taken + 1] = owner
    redis.call('PUBLISH', CHANNEL .. holder.client, 'lost ' .. owner .. ' ' .. lock.key)
  end
end
if #taken > 0 then
  next_fence(lock, 1)
  local record = plain(now) .. ' ' .. table.concat(taken, ',') .. ' ' .. ARGV[4]
  redis.call('SET', lock.key .. ':x', record, 'PX', ARGV[5])
  settle(lock)
end
close(lock)
return { ARGV[1], taken }
