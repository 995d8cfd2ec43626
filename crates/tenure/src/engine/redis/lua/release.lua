-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock
-- and for each lock: its owner for the only entry; or "owner number linger-in-ms keep": with keep above 0
-- the entry stays and all permits but so many are given back if it is the only one
-- Returns lines: the first argument, and for each lock the number of entries that remain, "none" when there
-- was no such entry, or "-error"; followed by a plus sign if there is
-- more to settle than one call may do.
local first_line, stamp = ARGV[1], nil

--@ plain_begin.lua

for i = 1, #KEYS do
  local key, text, options, written = KEYS[i], texts[i], ARGV[i + 1], nil
  local is_again = seen and seen[key]
  -- The plain case: held by this owner alone, entered once, without waiters. Its lease may have just
  -- ended, but no other client has held the lock since.
  local mark = text and not is_again and #options == 32 and string.byte(text, 17)
  local at = (mark == 32 or mark == 45) and 27 or 44
  if mark and string.sub(text, at, at + 31) == options then
    local fence = string.sub(text, 1, 16)
    if mark == 32 or mark == 42 then
      -- A blank or a star: the key expires soon enough, by the server's clock after the lease, and so after the fence.
      -- With KEEPTTL, a step of the clock cannot make it expire too early.
      written = redis.pcall('SET', key, fence, 'KEEPTTL')
    else
      if not stamp then
        local time = redis.call('TIME')
        stamp = time[1] .. string.sub('00000' .. time[2], -6)
      end
      -- The fences of a hand-over end some µs ahead of the clock, so it is a ms more than the retention. A fence that
      -- was proposed may be a minute ahead.
      local ahead = (tonumber(fence) or 1e17) - stamp
      if ahead <= 1000 then
        written = redis.pcall('PSETEX', key, string.match(ARGV[1], '%d+$') + 1, fence)
      elseif ahead <= 100000000 then
        written = redis.pcall('PSETEX', key, string.match(ARGV[1], '%d+$') + math.ceil(ahead / 1000), fence)
      end
    end
  end
  local result = written and not written.err and '0'
  --@ plain_result.lua
end

--@ plain_end.lua

local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

--@ fast_path.lua

-- Replaces the first waiter by a holder. Returns nil if nothing was done.
local function write_next(mutex, owner, lease, fences, to, note, first)
  -- As many fences as requested: the last fence is earlier than the clock (read_mutex).
  local fence, extra = string.format('%016.0f', first + fences - 1), fences - 1
  local ahead = retention + math.ceil(extra / 1000)
  local more = (extra > 0 or note ~= '') and extra .. ' ' .. note
  if mutex.waiting == 1 then
    -- Another client may keep fences for longer: it has set the expiry of the hash when it joined the queue, and sets
    -- it again when it releases.
    local at_least = to ~= client and math.ceil((mutex.expires - now) / 1000) or nil
    local text, kept = held_text(fence, stamp, lease, owner, to, more, ahead, at_least)
    return not redis.pcall('PSETEX', mutex.key, kept, text).err
  elseif now + (lease + ahead) * 1000 > mutex.expires then
    return nil
  end
  -- A server that is out of memory refuses HSET, unless the script has written before.
  local removed = redis.pcall('HDEL', mutex.key, 'q' .. mutex.head, 'w' .. owner .. ':0', 'm')
  if type(removed) == 'table' then
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

-- Hands a mutex over to its first waiter, if its client is subscribed. Returns nil if nothing was done.
local function hand_to_first(key, owner)
  local mutex = read_mutex(key, 'c')
  if not mutex or not mutex.field or mutex.owner ~= owner then
    return nil
  end
  local next_owner, lease, fences, to, note, proposal = first_waiter(mutex)
  if not next_owner or fences == '0' then
    return nil
  end
  if (receivers(to) or 0) == 0 then
    return nil
  end
  local first = proposal and math.max(mutex.fence + 1, proposal) or now
  if write_next(mutex, next_owner, lease, fences, to, note, first) then
    publish(to, table.concat({
      'granted', next_owner .. ':0', proposal and string.format('%.0f', first) or stamp, fences, lease, stamp, key,
    }, ' '))
    return '0'
  end
end

local left = on_fast_path(function(i, key, text)
  return not text and #ARGV[i + 1] == 32 and hand_to_first(key, ARGV[i + 1])
end)
if #left == 0 then
  return table.concat(results, '\n')
end

--@ lock.lua

local function release(lock, options)
  local owner, number, linger, keep = string.match(options, '^(%x+) (%x+) (%d+) (%d+)$')
  -- Without waiters, or while a mutex is held, there is nothing to settle.
  if lock.waiting > 0 and not (lock.holder and lock.holder.ends > lock.time) then
    settle(lock)
  end
  return end_entry(lock, owner, number, tonumber(linger), tonumber(keep)) or 'none'
end

for _, i in ipairs(left) do
  local options = ARGV[i + 1]
  on_lock(results, i, texts[i], function(lock)
    return release(lock, #options == 32 and options .. ' 0 0 0' or options)
  end)
end
return table.concat(results, '\n')
