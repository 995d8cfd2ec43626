-- Take locks, or join their queues. Upholds I1, I4, I5, I10.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock. One argument,
-- because each argument costs as much as several of the steps below.
-- and for each lock: the text to store behind the fence of a holder (lock.lua), for how many ms the
-- key of a held lock is kept, and the options:
-- "number kind-and-limit permits heartbeat claim fences note", heartbeat 0 for not waiting. For the
-- one permit of a mutex, entered once and without a note, the plain case: "-" without waiting, or
-- "+heartbeat claim fences". On a node of a quorum, "=fence " before the options: the fence that the client proposes;
-- ">fence " if it repairs a hold that other nodes have, "~fence " if it was answered before
-- (semaphores, and entries with a number).
-- Returns lines: the first argument, and for each lock one of
-- "1 fence"   granted now, with one fence, for the requested lease     "1 fence now"   the same, with a proposal
-- "1 fence fences lease-in-ms now"   granted       "2 ahead µs-until-free now"   queued
-- "3"   busy                "4 kind-and-limit"   in use as another kind
-- "5 permits"   the owner holds fewer          "-error"   the key's value was not written by Tenure
-- "6 last"   the proposed fence is not above this one          "7 now"   it is too far ahead of the clock
-- followed by a plus sign if there is more to settle than one call may do: retry at once.
local first_line = ARGV[1]
local time = redis.call('TIME')
local stamp = time[1] .. time[2]
if #stamp < 16 then
  stamp = time[1] .. string.sub('00000' .. time[2], -6)
end

--@ plain_begin.lua

for i = 1, #KEYS do
  local key, text, written, result = KEYS[i], texts[i], nil, nil
  local is_again = seen and seen[key]
  -- "-" or "+": the plain case, if no client holds the lock and its last fence is earlier than the clock. No request
  -- overtakes an earlier one for the same lock in the same call (I10).
  if string.byte(ARGV[i * 3 + 1]) <= 45 and not is_again then
    if not text then
      -- NX: a key that MGET reads as missing may be a hash, which must not be overwritten.
      written = redis.pcall('SET', key, stamp .. ARGV[i * 3 - 1], 'PX', ARGV[i * 3], 'NX')
    elseif #text == 16 and text < stamp and string.find(text, '^%d+$') then
      written = redis.pcall('PSETEX', key, ARGV[i * 3], stamp .. ARGV[i * 3 - 1])
    end
  elseif string.byte(ARGV[i * 3 + 1]) == 61 and not is_again then
    -- "=": the same with a proposal. It is not the time of the grant, so the text has both.
    local fence, kept, set = string.sub(ARGV[i * 3 + 1], 2, 17), ARGV[i * 3], nil
    local ahead, blank, option = fence - stamp, string.byte(ARGV[i * 3 + 1], 18, 19)
    -- Not too far from the clock (refuse_ahead, refuse_outdated), for a mutex, and for a minute at most.
    if ahead <= 60000000 and ahead > -30000000 and blank == 32 and option <= 45
      and string.byte(ARGV[i * 3 - 1]) == 32 then
      if ahead > 0 then
        kept = kept + math.ceil(ahead / 1000)
      end
      if not text then
        set = redis.pcall('SET', key, fence .. '*' .. stamp .. ARGV[i * 3 - 1], 'PX', kept, 'NX')
      elseif #text == 16 and text < fence and string.find(text, '^%d+$') then
        set = redis.pcall('PSETEX', key, kept, fence .. '*' .. stamp .. ARGV[i * 3 - 1])
      end
    end
    result = set and not set.err and '1 ' .. fence .. ' ' .. stamp
  end
  -- A server that is out of memory refuses this write. The request may still re-enter or renew a place in the queue.
  local is_granted = written and not written.err
  -- In one concatenation rather than two: 2 % of the call.
  if is_granted and count == 1 then
    return first_line .. '\n1 ' .. stamp
  end
  result = result or is_granted and '1 ' .. stamp
  --@ plain_result.lua
end

--@ plain_end.lua

local client, retention = string.match(ARGV[1], ' (%S+) (%d+)$')
local now = tonumber(stamp)

--@ fast_path.lua

-- The record of a waiter for a mutex that is its owner's only entry.
local function waiter_text(owner, lease, alive, claim, fences)
  return string.format('0 %.0f 1 %d %s %s %s %s %s:0 ', alive, lease, claim, fences, stamp, client, owner)
end

-- The first waiter of a mutex that is a string converts it to a hash, through another key of the same slot (see
-- write_fields). Returns nil if nothing was done.
local function wait_first(key, text, owner, lease, alive, claim, fences)
  local fence, since, length, holder, of, more = held_parts(text)
  if not fence or #fence ~= 16 or fence > stamp or #since ~= 16 or since > stamp or #length ~= 8
    or #holder ~= 32 or holder == owner or more ~= '' and not string.find(more, '^%d+ %S*$') then
    return nil
  end
  local ends = since + length * 1000
  if ends <= now then
    return nil
  end
  -- A waiter never shortens the expiry that the holder has set.
  local expires = math.max(math.max(alive, ends) + retention * 1000 + SLACK, now + redis.call('PTTL', key) * 1000)
  local fields = {
    's', string.format('2 m1 1 1 1 %s %.0f', stamp, expires), 'f', fence, 'c', of,
    'o', holder .. ' ' .. since .. ' ' .. length,
    'q1', waiter_text(owner, lease, alive, claim, fences), 'w' .. owner .. ':0', '1', nil, nil,
  }
  if more ~= '' then
    fields[13], fields[14] = 'm', more
  end
  -- A key that another program has put there is no part of the lock; and while a cluster moves the slot, the server
  -- refuses to look for one.
  if redis.pcall('EXISTS', key .. ':new') ~= 0 then
    return nil
  end
  local written = redis.pcall('HSET', key .. ':new', unpack(fields))
  if type(written) == 'table' or replace_by_hash(key) then
    return nil
  end
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((expires - now) / 1000)))
  return '2 0 ' .. ends - now .. ' ' .. stamp
end

-- Whether a waiter with this proposal belongs behind the last waiter.
local function is_last(mutex, proposal, owner)
  local last = redis.call('HGET', mutex.key, 'q' .. mutex.ticket)
  if not last then
    -- It has left the queue: lock.lua searches for the one before it.
    return false
  end
  local other, its_owner = string.match(last, '@(%d+) %d+ %S+ (%x+):')
  return not other or other - proposal < 0 or other - proposal == 0 and its_owner <= owner
end

-- Joins a queue that is not empty. Returns nil if nothing was done.
local function wait_behind(key, owner, lease, alive, claim, fences, proposal)
  local entry = 'w' .. owner .. ':0'
  local mutex = read_mutex(key, entry)
  if not mutex or mutex.owner == owner or mutex.field or not first_waiter(mutex)
    or proposal and not is_last(mutex, proposal, owner)
    or math.max(alive, mutex.ends) + retention * 1000 > mutex.expires then
    return nil
  end
  local ticket = mutex.ticket + 1
  local state = string.format('2 m1 %d %d %d %s %.0f', mutex.waiting + 1, ticket, mutex.head, stamp, mutex.expires)
  local written = redis.pcall('HSET', key, 's', state, 'q' .. ticket,
    waiter_text(owner, lease, alive, claim, fences), entry, ticket)
  if type(written) == 'table' then
    return nil
  end
  return '2 ' .. math.min(mutex.waiting, MAX_AHEAD) .. ' ' .. mutex.ends - now .. ' ' .. stamp
end

local left = on_fast_path(function(i, key, text)
  local held, heartbeat, claim, fences = ARGV[i * 3 - 1], string.match(ARGV[i * 3 + 1], '^%+(%d+) (%d+) (%d+)$')
  local proposal
  if not heartbeat then
    proposal, heartbeat, claim, fences = string.match(ARGV[i * 3 + 1], '^=(%d+) %+(%d+) (%d+) (%d+)$')
    if not heartbeat or proposal - now > MAX_AHEAD_OF_CLOCK then
      return nil
    end
    fences = fences .. '@' .. proposal
  end
  local owner, lease = string.sub(held, 11, 42), tonumber(string.sub(held, 2, 9))
  local alive = now + heartbeat * 1000
  return text and wait_first(key, text, owner, lease, alive, claim, fences)
    or not text and wait_behind(key, owner, lease, alive, claim, fences, proposal)
end)
if #left == 0 then
  return table.concat(results, '\n')
end

--@ lock.lua

local function queued(lock, ahead)
  local ends = first_end(lock)
  if lock.parked > 0 and lock.reserved > lock.time then
    ends = math.min(ends or lock.reserved, lock.reserved)
  end
  local free = ends and math.max(ends - lock.time, 0) or 0
  return table.concat({ 2, math.min(ahead, MAX_AHEAD), plain(free), stamp }, ' ')
end

local function reenter(lock, holder, owner, number, permits, lease, is_again)
  -- The last entry to count down a latch may have got fewer permits than requested.
  if permits > holder.permits and lock.letter ~= 'l' then
    return '5 ' .. holder.permits
  end
  local waiter = waiter_of(lock, owner .. ':' .. number)
  if waiter then
    dequeue(lock, waiter)
  end
  -- A waiter that asks once more does not extend what other entries of its owner have: those that no client knows any more
  -- must end (I7).
  if is_again and holder.entries ~= number then
    lease = math.min(lease, math.floor((holder.ends - lock.time) / 1000))
  end
  holder.entries = with(holder.entries, number)
  holder.ends = math.max(holder.ends, lock.time + lease * 1000)
  save(lock, holder)
  return table.concat({ 1, plain(holder.fence), holder.fences, lease, stamp }, ' ')
end

-- The grant of an open latch: nothing is held, so there is no fence.
local function pass_latch(lease)
  return table.concat({ 1, 0, 1, lease, stamp }, ' ')
end

-- The number of unparked waiters ahead of a waiter, up to MAX_AHEAD.
local function ahead_of(lock, waiter)
  local found = 0
  if lock.returned > 0 then
    local most = math.min(lock.returned, EXACT)
    for _, ticket in ipairs(redis.call('HMGET', lock.key, unpack(numbered('r', 1, most)))) do
      found = found + (ticket and tonumber(ticket) < waiter.ticket and 1 or 0)
    end
  end
  local ticket = lock.head
  for _ = 1, EXACT do
    if found >= MAX_AHEAD or ticket >= waiter.ticket then
      break
    end
    local to = math.min(ticket + MAX_AHEAD, waiter.ticket) - 1
    for _, text in ipairs(redis.call('HMGET', lock.key, unpack(numbered('q', ticket, to)))) do
      found = found + (text and string.byte(text) == 48 and 1 or 0)
    end
    ticket = to + 1
  end
  return found
end

local function grant(lock, owner, number, permits, lease, note)
  lock.is_new_claim, lock.is_own = true, true
  local fence = lock.proposal or next_fence(lock, 1)
  lock.fence = math.max(lock.fence, fence)
  local holder = {
    owner = owner, ends = lock.time + lease * 1000, client = client, entries = number,
    permits = permits, fence = fence, fences = 1, note = note,
  }
  -- A proposal may precede waiters. Other entries of the same owner may be among them.
  local precedes = lock.proposal and lock.waiting > 0
  if precedes and number ~= '0' then
    grant_other_entries(lock, holder, lease)
  end
  save(lock, holder)
  if precedes then
    settle(lock)
  end
  return table.concat({ 1, plain(fence), 1, lease, stamp }, ' ')
end

--@ proposals.lua

-- Takes permits of a latch, as many as are left; the last one opens it.
local function count_down(lock, owner, number, permits, lease, note)
  local left = lock.limit - lock.used
  if left <= 0 or find(lock, owner) then
    return pass_latch(lease)
  end
  local granted = grant(lock, owner, number, math.min(permits, left), lease, note)
  settle(lock)
  return granted
end

-- The live waiters of a barrier, in order. Removes dead waiters, and closes the gaps between tickets, which each call
-- would otherwise have to skip. A barrier has no parked waiters, and fewer waiters than parties.
local function compact_waiters(lock)
  local found, from = {}, lock.head
  while from <= lock.ticket do
    local to = math.min(from + WORK_LIMIT - 1, lock.ticket)
    for at, text in ipairs(redis.call('HMGET', lock.key, unpack(numbered('q', from, to)))) do
      local waiter = text and read_waiter(from + at - 1, text)
      if waiter and waiter.alive <= lock.time then
        dequeue(lock, waiter)
      elseif waiter then
        found[#found + 1] = waiter
      end
    end
    from = to + 1
  end
  local last = lock.head - 1
  for _, waiter in ipairs(found) do
    last = last + 1
    if waiter.ticket ~= last then
      redis.call('HDEL', lock.key, 'q' .. waiter.ticket)
      waiter.ticket = last
      write_waiter(lock, waiter)
    end
  end
  lock.ticket, lock.waiting = last, #found
  return found
end

-- Opens a barrier for its waiters if the caller is its last party. Returns whether it is.
local function open_barrier(lock)
  local others = lock.limit - 1
  -- Compacted before there are too many gaps, so that a call takes milliseconds at most.
  if lock.waiting < others and lock.ticket - lock.head < 2 * WORK_LIMIT then
    return false
  end
  local waiters = compact_waiters(lock)
  if #waiters < others then
    return false
  end
  for at = 1, others do
    -- Another entry of the same owner may have entered together with this one.
    if waiters[at].number == '0' or waiter_at(lock, waiters[at].ticket) then
      hand_over(lock, waiters[at])
    end
  end
  return true
end

-- Grants at once if the request need not wait.
local function enter(lock, owner, number, permits, lease, note, heartbeat)
  if lock.letter == 'l' then
    if permits > 0 then
      return count_down(lock, owner, number, permits, lease, note)
    end
    return fits(lock, owner, permits) and pass_latch(lease)
  elseif lock.letter == 'b' then
    if heartbeat == 0 or not open_barrier(lock) then
      return false
    end
    -- Another entry of the same owner may have been among the waiters.
    local holder = find(lock, owner)
    return holder and holder.entries ~= '' and reenter(lock, holder, owner, number, permits, lease)
      or grant(lock, owner, number, 1, lease, note)
  end
  return fits(lock, owner, permits) and is_next(lock, owner) and not is_reserved(lock)
    and (refuse_outdated(lock) or grant(lock, owner, number, permits, lease, note))
end

-- A waiter polls: its liveness is extended, and it keeps its place.
local function refresh(lock, waiter, heartbeat)
  lock.changed = true
  waiter.alive = math.max(waiter.alive, lock.time + heartbeat * 1000)
  write_waiter(lock, waiter)
  return queued(lock, ahead_of(lock, waiter))
end

local function acquire(lock, owner, lease, options, proposal, mark)
  local number, kind, permits, heartbeat, claim, fences, note =
    string.match(options, '^(%x+) (%a%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
  permits, heartbeat = tonumber(permits), tonumber(heartbeat)
  local entry = owner .. ':' .. number
  lock.caller = entry
  -- The fences of latches and barriers have no meaning.
  lock.proposal = not string.find(kind, '^[lb]') and proposal or nil
  lock.is_repair = mark == '>'
  local is_again = lock.proposal and mark == '~' and heartbeat > 0 and number ~= '0'
  local repaired = lock.proposal and lock.is_repair and repair(lock, owner, number, kind, permits, lease, note)
  if repaired then
    return repaired
  end
  unpark(lock, entry)
  settle(lock)
  if is_idle(lock) then
    set_kind(lock, kind)
  elseif lock.kind ~= kind and (lock.letter ~= 's' or string.sub(kind, 1, 1) ~= 's') then
    return '4 ' .. lock.kind
  end
  local holder = find(lock, owner)
  if holder and holder.entries ~= '' then
    return reenter(lock, holder, owner, number, permits, lease, is_again)
  end
  local waiter = waiter_of(lock, entry)
  if waiter then
    return refresh(lock, waiter, heartbeat)
  end
  local refusal = refuse_ahead(lock)
  if refusal then
    return refusal
  end
  -- The latest request sets the number of permits of a semaphore. If that frees permits, waiters are served
  -- first; another entry of the same owner may be among them.
  if lock.kind ~= kind and (not mark or mark == '=') then
    set_kind(lock, kind)
    lock.changed = true
    settle(lock)
    holder = find(lock, owner)
    if holder and holder.entries ~= '' then
      return reenter(lock, holder, owner, number, permits, lease)
    end
  end
  local granted = enter(lock, owner, number, permits, lease, note, heartbeat)
  if granted then
    return granted
  end
  if heartbeat == 0 then
    return '3'
  end
  local behind = enqueue(lock, {
    entry = entry, owner = owner, number = number, alive = lock.time + heartbeat * 1000,
    permits = permits, lease = lease, claim = tonumber(claim), fences = tonumber(fences),
    since = stamp, client = client, note = note, proposal = lock.proposal,
  })
  return queued(lock, lock.waiting - lock.parked - 1 - behind)
end

-- In µs: how soon a request polls that cannot join a queue.
local POLL_IN_TRANSIT = 100 * 1000
for _, i in ipairs(left) do
  local mark, proposal, options = string.match(ARGV[i * 3 + 1], '^([=>~])(%d+) (.*)$')
  options = options or ARGV[i * 3 + 1]
  if options == '-' then
    options = '0 m1 1 0 0 1 '
  elseif string.sub(options, 1, 1) == '+' then
    options = '0 m1 1 ' .. string.sub(options, 2) .. ' '
  end
  local held = ARGV[i * 3 - 1]
  on_lock(results, i, texts[i], function(lock)
    return acquire(lock, string.sub(held, 11, 42), tonumber(string.sub(held, 2, 9)), options,
      tonumber(proposal), mark)
  end)
  -- A request that cannot join a queue, because a cluster moves the slot, polls for the lock instead.
  if string.find(results[i + 1], '^%-TRYAGAIN') and not string.find(options, '^%x+ %a%d+ %d+ 0 ') then
    results[i + 1] = table.concat({ 2, 0, POLL_IN_TRANSIT, stamp }, ' ')
  end
end
return table.concat(results, '\n')
