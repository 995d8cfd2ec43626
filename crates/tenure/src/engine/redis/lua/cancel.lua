-- Leave queues, and give back what was granted in the meantime. Upholds I5, I6.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- and for each lock: owner, number of the entry
-- Returns lines: the nonce, and for each lock "0" or "-error".
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

for i, key in ipairs(KEYS) do
  local lock, wrong = open(key)
  if lock then
    local owner, number = ARGV[i * 2 + 1], ARGV[i * 2 + 2]
    local waiter = waiter_of(lock, owner .. ':' .. number)
    if waiter then
      dequeue(lock, waiter)
    else
      settle(lock)
      leave(lock, owner, number, 0)
    end
    settle(lock)
    close(lock)
    results[i + 1] = '0'
  else
    results[i + 1] = '-' .. wrong.err
  end
end
return table.concat(results, '\n')
