-- The fast path of a contended mutex: included by acquire, renew and release between their plain case and lock.lua.
-- It has the same effect as lock.lua, in fewer commands and without defining any of its functions, in the usual
-- state: one holder, entered once, whose lease runs; no waiter parked, no record of a forced release, and a clock
-- that was not set back. In any other state it changes nothing and leaves the lock to lock.lua. The same test compares
-- both with the table (core/table.rs).

--@ common.lua

-- The mutex of a hash, with one additional field; nil if its state is not the usual one. A queue mostly begins with
-- ticket 1, so that waiter is read in the same command.
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
    expires = tonumber(expires), owner = owner, ends = since + lease * 1000, field = v[9], fence = v[2],
  }
end

-- The first waiter, if it is alive, not parked, and waits with one entry for one permit; with a proposal, if that is
-- not ahead of the clock.
local function first_waiter(mutex)
  local text = mutex.first
  if mutex.head ~= 1 then
    text = redis.call('HGET', mutex.key, 'q' .. mutex.head)
  end
  local alive, lease, claim, fences, client, owner, note =
    string.match(text or '', '^0 (%d+) 1 (%d+) (%d+) (%d+) %d+ (%S+) (%x+):0 (%S*)$')
  local proposal
  if text and not alive then
    alive, lease, claim, fences, proposal, client, owner, note =
      string.match(text, '^0 (%d+) 1 (%d+) (%d+) (%d+)@(%d+) %d+ (%S+) (%x+):0 (%S*)$')
  end
  if alive and tonumber(alive) > now and #owner == 32 and not (proposal and proposal - now > 0) then
    return owner, math.min(claim, lease), fences, client, note, proposal
  end
end

-- Runs `operation(i, key, text)` on the locks that the plain case has left, and notes its results; returns those that
-- it leaves to lock.lua, by returning nil. A text is false where the key is not a string, and nil for a lock that the
-- call has named before: that goes to lock.lua, because no request may overtake an earlier one (I10).
local function on_fast_path(operation)
  local left = {}
  for _, i in ipairs(rest) do
    local is_done, result = nil, nil
    if texts[i] ~= nil then
      is_done, result = pcall(operation, i, KEYS[i], texts[i])
    end
    if result then
      results[i + 1] = is_done and result or failure(result)
    else
      left[#left + 1] = i
    end
  end
  return left
end
