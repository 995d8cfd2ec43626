-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- and for each lock: owner, and "-" for its only entry, or "number linger-in-ms"
-- Returns lines: the nonce, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error".
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local results = { ARGV[1] }
local rest, late
for i = 1, #KEYS do
  local key = KEYS[i]
  local v = ARGV[i * 2 + 2] == '-' and redis.pcall('HMGET', key, 'o', 'u', 'l', 'w', 'n', 'k')
  -- The plain case: held by this owner alone, entered once, and nobody waits.
  if v and not (late and late[key]) and v[1] == ARGV[i * 2 + 1] and not v[4] and not v[5] and not v[6]
    and v[2] + v[3] * 1000 > now then
    redis.call('HDEL', key, 'o', 'u', 'l', 'c', 'x', 'm')
    results[i + 1] = '0'
  else
    rest, late = rest or {}, late or {}
    rest[#rest + 1], late[key] = i, true
  end
end
if not rest then
  return table.concat(results, '\n')
end

--@ lock.lua

local function release(lock, owner, wish)
  local number, linger = string.match(wish == '-' and '0 0' or wish, '^(%x+) (%d+)$')
  -- A mutex that is held has nothing to settle.
  if not lock.holder or lock.holder.ends <= now then
    settle(lock)
  end
  return leave(lock, owner, number, tonumber(linger)) or 'none'
end

for _, i in ipairs(rest) do
  on_lock(results, i, function(lock)
    return release(lock, ARGV[i * 2 + 1], ARGV[i * 2 + 2])
  end)
end
return table.concat(results, '\n')
