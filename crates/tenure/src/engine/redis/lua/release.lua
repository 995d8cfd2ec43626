-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": who asks, and for how many ms a fence outlives its lock
-- and for each lock: its owner for the only entry; or "owner number linger-in-ms keep": with keep above 0
-- the entry stays and all permits but so many are given back if it is the only one
-- Returns lines: the first argument, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error"; with a plus sign behind it where there is
-- more to settle than one call may do.
local texts = redis.call('MGET', unpack(KEYS))
-- A single lock, which is most calls, needs no tables.
local count, results, seen, rest, stamp = #KEYS, nil, nil, nil, nil
if count > 1 then
  results, seen = { ARGV[1] }, {}
end
for i = 1, count do
  local key, text, wish, written = KEYS[i], texts[i], ARGV[i + 1], nil
  local is_again = seen and seen[key]
  -- The plain case: held by this owner alone, entered once, and no client waits. Its lease may have just
  -- ended, but no other has had the lock since.
  local mark = text and not is_again and #wish == 32 and string.byte(text, 17)
  local at = mark == 43 and 44 or 27
  if mark and string.sub(text, at, at + 31) == wish then
    local fence = string.sub(text, 1, 16)
    if mark == 32 then
      -- A blank: its key expires soon enough, at a time of the server's clock later than the lease, and so
      -- than the fence. Left as it is, no clock that is set makes it go too soon.
      written = redis.pcall('SET', key, fence, 'KEEPTTL')
    else
      if not stamp then
        local time = redis.call('TIME')
        stamp = time[1] .. string.sub('00000' .. time[2], -6)
      end
      -- The fences of a hand-over end some µs ahead of the clock, so it is a ms more than the retention.
      if (tonumber(fence) or 1e16) - stamp <= 1000 then
        written = redis.pcall('PSETEX', key, string.match(ARGV[1], '%d+$') + 1, fence)
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

local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

--@ straight.lua

-- Writes the next holder in the place of the first waiter, and what it is to be told; nil if that is not done.
local function write_next(mutex, owner, lease, fences, to, note)
  -- As many fences as it wants, for the last one of before is behind the clock.
  local fence, extra = string.format('%.0f', now + fences - 1), fences - 1
  local ahead = retention + math.ceil(extra / 1000)
  local more = (extra > 0 or note ~= '') and extra .. ' ' .. note
  if mutex.waiting == 1 then
    -- Another client may keep fences for longer: it has told the hash so when it came, and tells it again when it goes.
    local told = to ~= client and math.ceil((mutex.expires - now) / 1000) or nil
    local text, kept = held_text(fence, stamp, lease, owner, to, more, ahead, told)
    return not redis.pcall('PSETEX', mutex.key, kept, text).err
  elseif now + (lease + ahead) * 1000 > mutex.expires then
    return nil
  end
  -- A server that is out of memory refuses HSET, unless the script has written before.
  local gone = redis.pcall('HDEL', mutex.key, 'q' .. mutex.head, 'w' .. owner .. ':0', 'm')
  if type(gone) == 'table' then
    return nil
  end
  local state = string.format('2 m1 %d %s %d %s %.0f', mutex.waiting - 1, mutex.ticket, mutex.head + 1, stamp,
    mutex.expires)
  local held = string.format('%s %s %08d', owner, stamp, lease)
  local fields = { 's', state, 'f', fence, 'o', held, 'c', to, nil, nil }
  if more then
    fields[9], fields[10] = 'm', more
  end
  redis.call('HSET', mutex.key, unpack(fields))
  return true
end

-- Hands a mutex over to its first waiter, if it can be reached; nil if that is not done.
local function pass(key, owner)
  local mutex = read_mutex(key, 'c')
  if not mutex or not mutex.field or mutex.owner ~= owner then
    return nil
  end
  local next_owner, lease, fences, to, note = first_waiter(mutex)
  if not next_owner or fences == '0' then
    return nil
  end
  local channel = CHANNEL .. to
  local found = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if found.err or found[2] == 0 then
    return nil
  end
  if write_next(mutex, next_owner, lease, fences, to, note) then
    redis.call('PUBLISH', channel, table.concat({
      'granted', next_owner .. ':0', stamp, fences, lease, stamp, key,
    }, ' '))
    return '0'
  end
end

local left = {}
for _, i in ipairs(rest) do
  local wish = ARGV[i + 1]
  local is_passed = #wish == 32 and on_straight(results, i, texts[i], function(key, text)
    return not text and pass(key, wish)
  end)
  if not is_passed then
    left[#left + 1] = i
  end
end
if #left == 0 then
  return table.concat(results, '\n')
end

--@ lock.lua

local function release(lock, wish)
  local owner, number, linger, keep = string.match(wish, '^(%x+) (%x+) (%d+) (%d+)$')
  -- While nobody waits, or a mutex is held, there is nothing to settle.
  if lock.waiting > 0 and not (lock.holder and lock.holder.ends > lock.time) then
    settle(lock)
  end
  return leave(lock, owner, number, tonumber(linger), tonumber(keep)) or 'none'
end

for _, i in ipairs(left) do
  local wish = ARGV[i + 1]
  on_lock(results, i, texts[i], function(lock)
    return release(lock, #wish == 32 and wish .. ' 0 0 0' or wish)
  end)
end
return table.concat(results, '\n')
