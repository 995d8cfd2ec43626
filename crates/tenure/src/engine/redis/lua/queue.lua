-- The waiters of a lock, and their notifications.

local function read_waiter(ticket, text)
  local parked, alive, permits, lease, claim, fences, proposal, since, client, owner, number, note =
    string.match(text, '^([01]) (%d+) (%d+) (%d+) (%d+) (%d+)@?(%d*) (%d+) (%S+) (%x+):(%x+) (%S*)$')
  return parked and {
    ticket = ticket, parked = parked == '1', alive = tonumber(alive), permits = tonumber(permits),
    lease = tonumber(lease), claim = tonumber(claim), fences = tonumber(fences), since = since,
    client = client, owner = owner, number = number, entry = owner .. ':' .. number, note = note,
    proposal = tonumber(proposal),
  }
end

-- The waiter with a ticket; nil if there is none, false if it was not written by Tenure.
local function waiter_at(lock, ticket)
  local text = redis.call('HGET', lock.key, 'q' .. ticket)
  if text then
    return read_waiter(ticket, text) or false
  end
end

local function waiter_of(lock, entry)
  local ticket = lock.waiting > 0 and tonumber(redis.call('HGET', lock.key, 'w' .. entry) or nil)
  local waiter = ticket and waiter_at(lock, ticket)
  return waiter and waiter.entry == entry and waiter or nil
end

local function write_waiter(lock, waiter)
  lock.changed, lock.keep = true, math.max(lock.keep, waiter.alive)
  local fences = waiter.fences .. (waiter.proposal and '@' .. plain(waiter.proposal) or '')
  put(lock, lock.key, 'q' .. waiter.ticket, table.concat({
    waiter.parked and 1 or 0, plain(waiter.alive), waiter.permits, waiter.lease, waiter.claim,
    fences, waiter.since, waiter.client, waiter.entry, waiter.note,
  }, ' '), 'w' .. waiter.entry, waiter.ticket)
end

-- Writes the list of an owner's entries that wait; only re-entrant owners have more than one.
local function note_waiting(lock, waiter, list)
  if list == '' then
    redis.call('HDEL', lock.key, '@' .. waiter.owner)
  else
    put(lock, lock.key, '@' .. waiter.owner, list)
  end
end

local function waiting_of(lock, owner)
  return redis.call('HGET', lock.key, '@' .. owner) or ''
end

-- Writes a waiter that has its ticket, and counts it.
local function add_waiter(lock, waiter)
  write_waiter(lock, waiter)
  lock.waiting = lock.waiting + 1
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, with(waiting_of(lock, waiter.owner), waiter.number))
  end
end

-- The last waiters that a new one with this proposal precedes, from the last to the first: all nodes of a quorum order
-- their waiters by (proposal, owner). A waiter without a proposal is not overtaken. Waiters that leave the queue leave
-- gaps: no more than WORK_LIMIT tickets are searched.
local function overtaken(lock, proposal, owner)
  local found, to, size = {}, lock.ticket, 1
  while proposal and to >= lock.head and lock.ticket - to < WORK_LIMIT do
    local from = math.max(to - size + 1, lock.head)
    local texts = redis.call('HMGET', lock.key, unpack(numbered('q', from, to)))
    for at = #texts, 1, -1 do
      local waiter = texts[at] and (read_waiter(from + at - 1, texts[at]) or {})
      local other = waiter and waiter.proposal
      if waiter and (#found == MAX_OVERTAKEN or not other or other < proposal
        or other == proposal and waiter.owner <= owner) then
        return found
      end
      found[#found + 1] = waiter or nil
    end
    to, size = from - 1, math.min(size * 2, CHUNK)
  end
  return found
end

local function enqueue(lock, waiter)
  lock.is_new_claim = true
  make_hash(lock)
  if lock.waiting == 0 and lock.returned == 0 then
    lock.ticket, lock.head, lock.first = 0, 1, 1
  end
  local last = overtaken(lock, waiter.proposal, waiter.owner)
  lock.ticket = lock.ticket + 1
  waiter.ticket = lock.ticket
  -- Each of them gets the ticket behind its own, and the new one that of the first.
  for _, other in ipairs(last) do
    other.ticket, waiter.ticket = waiter.ticket, other.ticket
    write_waiter(lock, other)
  end
  add_waiter(lock, waiter)
  return #last
end

local function dequeue(lock, waiter)
  lock.changed, lock.waiting = true, lock.waiting - 1
  redis.call('HDEL', lock.key, 'q' .. waiter.ticket, 'w' .. waiter.entry)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, (without(waiting_of(lock, waiter.owner), waiter.number)))
  end
  if waiter.parked then
    lock.parked = lock.parked - 1
  end
  if waiter.ticket == lock.head then
    lock.head = lock.head + 1
  end
end

-- Returned tickets are a heap, the smallest first. A ticket whose waiter was removed or parked again is dropped
-- when it reaches the top.
local function push_returned(lock, ticket)
  local at = lock.returned + 1
  lock.returned = at
  while at > 1 do
    local above = math.floor(at / 2)
    local other = tonumber(redis.call('HGET', lock.key, 'r' .. above) or 0)
    if other <= ticket then
      break
    end
    put(lock, lock.key, 'r' .. at, other)
    at = above
  end
  put(lock, lock.key, 'r' .. at, ticket)
end

local function pop_returned(lock)
  local count, at = lock.returned - 1, 1
  local last = tonumber(redis.call('HGET', lock.key, 'r' .. lock.returned) or 0)
  redis.call('HDEL', lock.key, 'r' .. lock.returned)
  lock.changed, lock.returned = true, count
  if count == 0 then
    return
  end
  while at * 2 <= count do
    local below = at * 2
    local pair = redis.call('HMGET', lock.key, 'r' .. below, 'r' .. math.min(below + 1, count))
    local left, right = tonumber(pair[1] or 0), tonumber(pair[2] or 0)
    if right < left then
      below, left = below + 1, right
    end
    if last <= left then
      break
    end
    put(lock, lock.key, 'r' .. at, left)
    at = below
  end
  put(lock, lock.key, 'r' .. at, last)
end

-- Parks a waiter whose client is not subscribed: the client may be dead, or only its connection for wake-ups is
-- lost. Until it polls, other waiters are served.
local function park(lock, waiter)
  waiter.parked, lock.parked = true, lock.parked + 1
  write_waiter(lock, waiter)
  -- In a cluster it may be subscribed at another node, while the slot is in transit from there: it is notified to poll
  -- through all nodes.
  if is_sharded(waiter.client) then
    publish_to_all(waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
  end
  if waiter.ticket == lock.head then
    lock.head = lock.head + 1
  end
end

-- A waiter polls: if it was parked, it returns to its place.
local function unpark(lock, entry)
  local waiter = lock.parked > 0 and waiter_of(lock, entry)
  if waiter and waiter.parked then
    waiter.parked, lock.parked = false, lock.parked - 1
    write_waiter(lock, waiter)
    if waiter.ticket < lock.head then
      push_returned(lock, waiter.ticket)
    end
  end
end

-- The first parked waiter from `ticket` on, before `before`, if it is among the next WORK_LIMIT tickets. Mostly it is
-- the first of them; if not, the number of waiters read by one command doubles.
local function parked_from(lock, ticket, before)
  local last, size = math.min(ticket + WORK_LIMIT, before) - 1, 1
  while ticket <= last do
    local to = math.min(ticket + size - 1, last)
    for at, text in ipairs(redis.call('HMGET', lock.key, unpack(numbered('q', ticket, to)))) do
      local waiter = text and string.byte(text) == 49 and read_waiter(ticket + at - 1, text)
      if waiter then
        return waiter
      elseif not text and ticket + at - 1 == lock.first then
        lock.first, lock.changed = lock.first + 1, true
      end
    end
    lock.work = lock.work - size / 8
    ticket, size = to + 1, math.min(size * 2, CHUNK)
  end
end

-- Removes parked waiters that have not polled in time; the first in the queue are the first to be dead.
local function purge_parked(lock)
  local ticket, before = lock.first, math.min(lock.head, lock.first + WORK_LIMIT)
  while lock.parked > 0 do
    if lock.work <= HALF then
      lock.more = true
      return
    end
    local waiter = parked_from(lock, ticket, before)
    if not waiter or waiter.alive > lock.time then
      return
    end
    dequeue(lock, waiter)
    lock.work = lock.work - CHANGE
    ticket = waiter.ticket + 1
  end
end

-- Whether a parked waiter with an earlier ticket comes first: only for RESERVED after the lock became free while
-- no waiter could be reached.
local function is_reserved(lock, ticket)
  return lock.parked > 0 and lock.reserved > lock.time
    and (not ticket or parked_from(lock, lock.first, ticket) ~= nil)
end

-- Whether a client is subscribed to its channel. For a user without permission to ask, the count that PUBLISH returns
-- decides.
local subscribed = {}
local function is_subscribed(client)
  if subscribed[client] == nil then
    subscribed[client] = (receivers(client) or 1) > 0
  end
  return subscribed[client]
end

-- Notifies a waiter of its grant; returns the number of receivers. None: its client is not subscribed.
local function notify(lock, waiter, fence, fences, lease)
  local words = { 'granted', waiter.entry, plain(fence), fences, lease, plain(now), lock.key }
  return publish(waiter.client, table.concat(words, ' '))
end

-- Grants the other waiting entries of an owner that just got the lock: left in the queue, they
-- would wait for themselves. One that waits for more permits than the owner has got leaves the queue, too, and is notified
-- to ask: then it is refused (I1).
local function grant_other_entries(lock, holder, lease)
  for number in string.gmatch(waiting_of(lock, holder.owner), '[^,]+') do
    local waiter = waiter_of(lock, holder.owner .. ':' .. number)
    if waiter then
      dequeue(lock, waiter)
      if waiter.permits > holder.permits then
        publish(waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
      else
        holder.entries = with(holder.entries, number)
        notify(lock, waiter, holder.fence, holder.fences, lease)
      end
    end
  end
end
