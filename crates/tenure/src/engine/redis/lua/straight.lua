-- The straight way through a mutex that clients wait for: included by acquire, renew and release between
-- their plain case and lock.lua. It does what lock.lua does, in fewer commands and without defining any of that,
-- where nothing is unusual: one holder, entered once, whose lease runs; no waiter parked, no record of a forced
-- release, and a clock that was not set back. Anything else it leaves to lock.lua, with nothing changed. The same
-- test holds both to the table's rules.

--@ common.lua

-- The mutex of a hash, with one field more; nil if anything is unusual. A queue mostly begins with ticket 1,
-- so the first waiter is read along.
local function read_mutex(key, field)
  local v = redis.pcall('HMGET', key, 's', 'f', 'o', 'n', 'p', 'u', 'x', 'q1', field)
  if v.err or not v[1] or not v[2] or not v[3] or v[4] or v[5] or v[6] or v[7] then
    return nil
  end
  local waiting, ticket, head, last, expires =
    string.match(v[1], '^2 m1 (%d+) (%d+) (%d+) (%d+) (%d+)$')
  local owner, since, lease = string.match(v[3], '^(%x+) (%d+) (%d+)$')
  if not waiting or waiting == '0' or last - now > 0 or expires - now > CENTURY or not owner or #owner ~= 32
    or #since ~= 16 or since > stamp or #lease ~= 8 or since + lease * 1000 <= now
    or #v[2] ~= 16 or v[2] >= stamp or not string.find(v[2], '^%d+$') then
    return nil
  end
  return {
    key = key, waiting = tonumber(waiting), ticket = ticket, head = tonumber(head), first = v[8],
    expires = tonumber(expires), owner = owner, ends = since + lease * 1000, field = v[9],
  }
end

-- What is known of its first waiter, if that is alive, not parked, and waits with one entry for one permit.
local function first_waiter(mutex)
  local text = mutex.first
  if mutex.head ~= 1 then
    text = redis.call('HGET', mutex.key, 'q' .. mutex.head)
  end
  local alive, lease, claim, fences, client, owner, note =
    string.match(text or '', '^0 (%d+) 1 (%d+) (%d+) (%d+) %d+ (%S+) (%x+):0 (%S*)$')
  if alive and tonumber(alive) > now and #owner == 32 then
    return owner, math.min(claim, lease), fences, client, note
  end
end

-- Performs an operation of the straight way, and notes its result: false if that is left to lock.lua. A
-- lock that is named twice in a call is, for no request overtakes an earlier one (I10): its text is nil then,
-- and false if it is not a string.
local function on_straight(results, i, text, operation)
  if text == nil then
    return false
  end
  local is_done, result = pcall(operation, KEYS[i], text)
  if result then
    results[i + 1] = is_done and result or failure(result)
  end
  return result
end
