-- Leave queues, and give back what was granted in the meantime. Upholds I5, I6.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] channel prefix     ARGV[4] fence retention, ms
-- and for each lock: owner, number of the entry
-- Returns the nonce, and for each lock 0, or an error.
local CHANNEL, RETENTION = ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

for i, key in ipairs(KEYS) do
  local lock, wrong = open(key)
  if lock then
    local owner, number = ARGV[i * 2 + 3], ARGV[i * 2 + 4]
    local waiter = waiter_of(lock, owner .. ':' .. number)
    if waiter then
      dequeue(lock, waiter)
    else
      settle(lock)
      leave(lock, owner, number, 0)
    end
    settle(lock)
    close(lock)
    wrong = 0
  end
  results[i + 1] = wrong
end
return results
