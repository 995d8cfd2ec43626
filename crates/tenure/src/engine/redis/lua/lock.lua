-- The full rules of a lock, and its layout in one key: included by every operation, after its plain case and fast path.
--
-- Times are microseconds of the server's clock; notes are percent-encoded.
--
-- A free lock is a string, its last fence, which outlives it for the retention. A mutex with one holder, entered once,
-- and without waiters, is a string, too:
--   "fence lease owner client extra note", the first three with 16, 8 and 32 digits, so that each has a fixed offset:
--   the last of its fences, which is also the time at which its lease began, and the length of the lease in ms.
--   `extra`, the number of fences beyond one, and the note are absent if there is neither. The first blank is a
--   "-" if a release must set the expiry of the key, because the lease is long;
--   "fence+since lease owner client extra note" if the lease began at another time, which renewals overwrite. Its key
--   expires later than it must, and a release sets the expiry again;
--   "fence*since lease owner client" if the fence was proposed, and the lease was not renewed yet. Its key expires like
--   that of the first form.
-- Everything else is a hash:
--   s  "2 kind-and-limit waiting ticket head last expires": the number of waiters; the last ticket, and the
--      first that may be unparked; the lock's time when this was written, and when the key expires
--   f  last fence
--   o  "owner since lease" of the holder of a mutex     c  its client     m  "extra note", if any
--   n  the numbers of its entries (absent: only 0; empty: released, but lingering)
--   u  "used count bound cursor least" of all kinds but a mutex: permits taken, number of holders; no
--      lease ends before the bound; position of the search for ended leases, and the least end it saw
--   h<owner>   a holder     i<number>  its owner, numbers without gaps
--   p  "first returned parked reserved shift" (absent: all as if unused): the first ticket there may be,
--      the number of returned tickets and of parked waiters; until when a free lock is reserved
--      for them; how far the lock's time is ahead of the clock
--   q<ticket>  a waiter     w<entry>  its ticket     @<owner>  the numbers of its entries that wait
--   r<number>  tickets of waiters that were parked and have polled since, as a heap
--   x  "until record" of the last forced release
--
-- The state begins with "2", so that no client of the first layout takes this for a free lock, nor this one an
-- old lock. All of it is in one key, because a cluster that moves a slot moves key by key (ADR 12).
--
-- The lock's time is the server's clock made monotonic: when the clock is set back, the lock's time stands still
-- in that call and then runs on at the same distance. So leases and heartbeats that have begun still end, no later
-- than their own length after the step (A2). Stamps and fences are the clock's.

--@ state.lua

--@ holders.lua

--@ queue.lua

-- Moves the first waiter from the queue to the holders, and notifies its client alone. A waiter whose client is not
-- subscribed is parked instead.
local function hand_over(lock, waiter)
  if lock.letter == 'l' then
    -- An open latch is not held, so there is no fence.
    dequeue(lock, waiter)
    notify(lock, waiter, 0, 1, waiter.lease)
    return
  end
  -- A party of a barrier counts even if its client is not subscribed: it finds the barrier open when it polls.
  -- The waiter that makes this call learns of its grant from the answer.
  local needs_message = lock.letter ~= 'b' and lock.caller ~= waiter.entry
  if needs_message and not is_subscribed(waiter.client) then
    lock.has_parked = true
    return park(lock, waiter)
  end
  -- A party that misses the message of a barrier finds it open when it polls next, which may take a heartbeat.
  local lease = lock.letter == 'b' and waiter.lease or math.min(waiter.claim, waiter.lease)
  -- Write before publishing: a server may refuse to write.
  dequeue(lock, waiter)
  local fence, fences = next_fence(lock, waiter.fences, waiter.proposal)
  if notify(lock, waiter, fence, fences, lease) == 0 and needs_message then
    subscribed[waiter.client], lock.has_parked = false, true
    add_waiter(lock, waiter)
    return park(lock, waiter)
  end
  local holder = {
    owner = waiter.owner, ends = lock.time + lease * 1000, client = waiter.client, fence = fence,
    entries = waiter.number, permits = waiter.permits, fences = fences, note = waiter.note,
  }
  if waiter.number ~= '0' then
    grant_other_entries(lock, holder, lease)
  end
  save(lock, holder)
end

-- The first waiter that is not parked: nil if there is none, false if the caller must try again.
local function head(lock)
  if lock.returned > 0 then
    local ticket = tonumber(redis.call('HGET', lock.key, 'r1') or 0)
    local waiter = waiter_at(lock, ticket)
    if waiter and not waiter.parked then
      return waiter
    end
    lock.work = lock.work - CHANGE
    pop_returned(lock)
    return false
  elseif lock.head > lock.ticket then
    if lock.waiting ~= lock.parked then
      -- The count is wrong: another program has removed waiters.
      lock.changed, lock.waiting = true, lock.parked
    end
    return nil
  end
  local waiter = waiter_at(lock, lock.head)
  if waiter and not waiter.parked then
    return waiter
  elseif waiter == false then
    -- Not written by Tenure: it cannot be served, and must not block the queue.
    redis.call('HDEL', lock.key, 'q' .. lock.head)
    lock.waiting = lock.waiting - 1
  end
  lock.changed, lock.head = true, lock.head + 1
  return false
end

-- The first waiter that is alive; removes the dead waiters before it.
local function live_head(lock)
  for _ = 1, WORK_LIMIT / CHANGE do
    local waiter
    if lock.waiting > 0 then
      waiter = head(lock)
    end
    if waiter == nil or waiter and waiter.alive > lock.time then
      return waiter
    elseif waiter then
      dequeue(lock, waiter)
    end
  end
  lock.more = true
end

-- Grants free permits to waiters, in order (I10), until the first of them must wait; with `one`, for a mutex,
-- until it is held.
local function serve(lock, one)
  while lock.work > 0 do
    if lock.waiting == 0 or one and lock.holder then
      return
    end
    local waiter = head(lock)
    lock.work = lock.work - (waiter and CHANGE or 1)
    if waiter == nil then
      return
    elseif waiter and waiter.alive <= lock.time then
      dequeue(lock, waiter)
    elseif waiter and fits(lock, waiter.owner, waiter.permits)
      and not is_reserved(lock, waiter.ticket) then
      hand_over(lock, waiter)
    elseif waiter and (lock.single or lock.letter == 'b' or lock.letter == 'l'
      or lock.caller == waiter.entry or is_subscribed(waiter.client)) then
      return
    elseif waiter then
      -- It does not fit, and may be dead: park it, so that waiters behind it that fit are served.
      park(lock, waiter)
    end
  end
  lock.more = true
end

local function serve_and_reserve(lock, one)
  lock.has_parked = false
  serve(lock, one)
  -- In this call, no waiter could be reached at its turn: the lock is reserved, so that they are served in order when
  -- they poll.
  if lock.has_parked and lock.waiting > 0 and lock.waiting == lock.parked then
    lock.reserved = lock.time + RESERVED
  end
end

-- Brings the lock up to date: ends leases, purges parked waiters, and serves waiters.
local function settle(lock)
  expire(lock)
  purge_parked(lock)
  if lock.waiting > 0 then
    serve_and_reserve(lock, false)
  end
end

-- If the lock is reserved for a parked waiter, the first unparked one is notified to poll: the answer says for how
-- long it must wait.
local function announce_reservation(lock)
  local waiter = lock.parked > 0 and lock.parked < lock.waiting and live_head(lock)
  if waiter and is_reserved(lock, waiter.ticket) then
    publish(waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
  end
end

-- Serves waiters after a holder was removed. For a mutex, the waiter behind the next holder need not be read.
local function serve_next(lock)
  if not lock.single then
    settle(lock)
  elseif lock.waiting > 0 then
    serve_and_reserve(lock, true)
  end
  announce_reservation(lock)
end

-- Ends one entry of a holder; or, with `keep`, gives back all permits but so many if it is the only entry. Returns
-- how many entries remain, or nil if there was no such entry.
local function end_entry(lock, owner, number, linger, keep)
  local holder = find(lock, owner)
  if not holder or not has(holder.entries, number) or holder.entries == '' then
    return nil
  end
  if keep > 0 then
    local _, count = without(holder.entries, '')
    if count == 1 and keep < holder.permits then
      lock.used = lock.used - holder.permits + keep
      holder.permits = keep
      save(lock, holder)
    end
    settle(lock)
    return count
  end
  local entries, remaining = without(holder.entries, number)
  holder.entries = entries
  if remaining > 0 then
    save(lock, holder)
  elseif linger > 0 then
    local was = holder.ends
    holder.ends = lock.time + linger * 1000
    save(lock, holder)
    -- The first waiter, which knows of a later end, is notified to poll.
    -- A latch and a barrier open when a party arrives, not when a holder leaves.
    local waiter = holder.ends < was and live_head(lock)
    if waiter and lock.letter ~= 'l' and lock.letter ~= 'b' then
      publish(waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
    end
  else
    remove(lock, owner)
    lock.is_own = true
    serve_next(lock)
  end
  return remaining
end

-- Opens the lock of KEYS[i], performs an operation on it, closes it, and notes the result: followed by a plus sign if
-- there is more to settle than one call may do. `text` is as for `open`.
local function on_lock(results, i, text, operation)
  local lock, wrong = open(KEYS[i], text)
  if not lock then
    results[i + 1] = failure(wrong)
    return
  end
  local is_done, result = pcall(function()
    local result = operation(lock)
    close(lock)
    return result
  end)
  results[i + 1] = is_done and result .. (lock.more and '+' or '') or failure(result)
end
