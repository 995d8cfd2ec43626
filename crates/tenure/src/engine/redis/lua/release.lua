-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] for how long a fence outlives its lock, in ms
-- and for each lock: owner, and "-" for its only entry, or "number linger-in-ms keep": with keep
-- above 0 the entry stays, and if it is the only one, all permits are given back but so many
-- Returns lines: the nonce, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error"; with a plus sign behind it where there is
-- more to settle than one call may do.
local results = { ARGV[1], '' }
local texts = redis.call('MGET', unpack(KEYS))
local seen, rest = #KEYS > 1 and {}, nil
for i = 1, #KEYS do
  local key, text, written = KEYS[i], texts[i], nil
  local is_again = seen and seen[key]
  -- The plain case: held by this owner alone, entered once, and no client waits. Its lease may have just
  -- ended, but no other has had the lock since. A key expires at a time of the server's clock, later than
  -- the lease, and so than the fence: left as it is, no clock that is set makes it go too soon.
  if text and not is_again and ARGV[i * 2 + 3] == '-' and string.sub(text, 18, 49) == ARGV[i * 2 + 2]
    and string.sub(text, 51, 58) <= '00060000' then
    written = redis.pcall('SET', key, string.sub(text, 1, 16), 'KEEPTTL')
  end
  if written and not written.err then
    results[i + 1] = '0'
  else
    rest = rest or {}
    rest[#rest + 1] = i
    if is_again then
      texts[i] = nil
    end
  end
  if seen then
    seen[key] = true
  end
end
if not rest then
  return #KEYS == 1 and results[1] .. '\n' .. results[2] or table.concat(results, '\n')
end

local retention = ARGV[3]
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
  on_lock(results, i, texts[i], function(lock)
    return release(lock, ARGV[i * 2 + 2], ARGV[i * 2 + 3])
  end)
end
return table.concat(results, '\n')
