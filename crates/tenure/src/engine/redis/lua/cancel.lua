-- Leave queues, and give back what was granted in the meantime. Upholds I5, I6.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": who asks, and for how many ms a fence outlives its lock
-- and for each lock: owner, number of the entry
-- Returns lines: the first argument, and for each lock "0" or "-error"; with a plus sign behind it where
-- there is more to settle than one call may do.
local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }

--@ lock.lua

local function cancel(lock, owner, number)
  local waiter = waiter_of(lock, owner .. ':' .. number)
  if waiter then
    dequeue(lock, waiter)
    settle(lock)
  else
    settle(lock)
    leave(lock, owner, number, 0, 0)
  end
  announce(lock)
  return '0'
end

for i = 1, #KEYS do
  on_lock(results, i, nil, function(lock)
    return cancel(lock, ARGV[i * 2], ARGV[i * 2 + 1])
  end)
end
return table.concat(results, '\n')
