-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] for how long a fence outlives its lock, in ms
-- and for each lock: its owner for the only entry; or "owner number linger-in-ms keep": with keep above 0
-- the entry stays and all permits but so many are given back if it is the only one
-- Returns lines: the nonce, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error"; with a plus sign behind it where there is
-- more to settle than one call may do.
local texts = redis.call('MGET', unpack(KEYS))
-- A single lock, which is most calls, needs no tables.
local count, results, seen, rest, stamp = #KEYS, nil, nil, nil, nil
if count > 1 then
  results, seen = { ARGV[1] }, {}
end
for i = 1, count do
  local key, text, wish, written = KEYS[i], texts[i], ARGV[i + 3], nil
  local is_again = seen and seen[key]
  -- The plain case: held by this owner alone, entered once, and no client waits. Its lease may have just
  -- ended, but no other has had the lock since.
  if text and not is_again and #wish == 32 and string.sub(text, 44, 75) == wish then
    local fence = string.sub(text, 1, 16)
    if string.byte(text, 34) == 32 then
      -- A blank: its key expires soon enough, at a time of the server's clock later than the lease, and so
      -- than the fence. Left as it is, no clock that is set makes it go too soon.
      written = redis.pcall('SET', key, fence, 'KEEPTTL')
    else
      if not stamp then
        local time = redis.call('TIME')
        stamp = time[1] .. string.sub('00000' .. time[2], -6)
      end
      if fence <= stamp then
        written = redis.pcall('PSETEX', key, ARGV[3], fence)
      end
    end
  end
  if written and not written.err then
    if count == 1 then
      return ARGV[1] .. '\n0'
    end
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
  return table.concat(results, '\n')
end
results = results or { ARGV[1] }

local retention = ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

--@ lock.lua

local function release(lock, wish)
  local owner, number, linger, keep = string.match(wish, '^(%x+) (%x+) (%d+) (%d+)$')
  -- While nobody waits, or a mutex is held, there is nothing to settle.
  if lock.waiting > 0 and not (lock.holder and lock.holder.ends > lock.time) then
    settle(lock)
  end
  return leave(lock, owner, number, tonumber(linger), tonumber(keep)) or 'none'
end

for _, i in ipairs(rest) do
  local wish = ARGV[i + 3]
  on_lock(results, i, texts[i], function(lock)
    return release(lock, #wish == 32 and wish .. ' 0 0 0' or wish)
  end)
end
return table.concat(results, '\n')
