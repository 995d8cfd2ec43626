-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- and for each lock: owner, and "-" for its only entry, or "number linger-in-ms keep": with keep
-- above 0 the entry stays, and if it is the only one, all permits are given back but so many
-- Returns lines: the nonce, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error"; with a plus sign behind it where there is
-- more to settle than one call may do.
local results = { ARGV[1], '' }
local rest, late
for i = 1, #KEYS do
  local key = KEYS[i]
  local v = ARGV[i * 2 + 2] == '-' and redis.pcall('HMGET', key, 'o', 'n', 's')
  local holder = v and v[1]
  -- The plain case: held by this owner alone, entered once, and nobody waits. Nobody has had the
  -- lock since, so the clock need not be asked whether the lease has just ended.
  if holder and not v[2] and not v[3] and not (late and late[key])
    and string.sub(holder, 1, 32) == ARGV[i * 2 + 1] then
    redis.call('HDEL', key, 'o', 'c', 'm')
    results[i + 1] = '0'
  else
    rest, late = rest or {}, late or {}
    rest[#rest + 1], late[key] = i, true
  end
end
if not rest then
  return #KEYS == 1 and results[1] .. '\n' .. results[2] or table.concat(results, '\n')
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

--@ lock.lua

local function release(lock, owner, wish)
  local number, linger, keep =
    string.match(wish == '-' and '0 0 0' or wish, '^(%x+) (%d+) (%d+)$')
  -- While nobody waits, or a mutex is held, there is nothing to settle.
  if lock.waiting > 0 and not (lock.holder and lock.holder.ends > lock.time) then
    settle(lock)
  end
  return leave(lock, owner, number, tonumber(linger), tonumber(keep)) or 'none'
end

for _, i in ipairs(rest) do
  on_lock(results, i, function(lock)
    return release(lock, ARGV[i * 2 + 1], ARGV[i * 2 + 2])
  end)
end
return table.concat(results, '\n')
