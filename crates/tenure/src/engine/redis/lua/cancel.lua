-- Leave queues, and release locks that were granted in the meantime. Upholds I5, I6.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock
-- and for each lock: owner, number of the entry
-- Returns lines: the first argument, and for each lock "0" or "-error"; followed by a plus sign if
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
    end_entry(lock, owner, number, 0, 0)
  end
  announce_reservation(lock)
  return '0'
end

for i = 1, #KEYS do
  on_lock(results, i, nil, function(lock)
    return cancel(lock, ARGV[i * 2], ARGV[i * 2 + 1])
  end)
end
return table.concat(results, '\n')
