-- What a lock is, in its one key: included by every operation, after its plain case.
--
-- Times are microseconds of the server's clock; texts of others are percent-encoded.
--
-- A free lock is a string, its last fence, which outlives it for the retention. A mutex that one client
-- holds, entered once, and that no client waits for, is a string, too:
--   "fence lease owner client extra note", the first three with 16, 8 and 32 digits, so that each has its place:
--   the last of its fences, the time of which is when its lease began, and for how many ms that runs. How many
--   fences it has beyond one, and a note, are absent if there is neither. In the place of the first blank is
--   "-" if a release must tell the key when to expire, because the lease is long;
--   "fence+since lease owner client extra note" if the lease runs since another moment, which renewals write
--   over. Its key is told to live for longer, and a release tells it again.
-- Everything else is a hash:
--   s  "2 kind-and-limit waiting ticket head last expires": how many wait; the last ticket, and the
--      first that may be unparked; the lock's time when this was written, and when the key expires
--   f  last fence
--   o  "owner since lease" of the holder of a mutex     c  its client     m  "extra note", if any
--   n  the numbers of its entries (absent: only 0; empty: released, but lingering)
--   u  "used count bound cursor least" of all kinds but a mutex: permits taken, how many hold them; no
--      lease ends before the bound; where the search for ended ones stands, and the least end it saw
--   h<owner>   a holder     i<number>  its owner, numbers without gaps
--   p  "first returned parked reserved shift" (absent: nothing of it): the first ticket there may be,
--      how many tickets have returned, how many waiters are parked; until when a free lock is reserved
--      for them; how far the lock's time is ahead of the clock
--   q<ticket>  a waiter     w<entry>  its ticket     @<owner>  the numbers of its entries that wait
--   r<number>  tickets of waiters that were parked and have asked again, as a heap
--   x  "until record" of the last forced release
--
-- The state says "2", and so no client of the first layout takes this for a free lock, nor this one an
-- old lock. All of it is in one key, because a cluster that moves a slot moves key by key (ADR 12).
--
-- The lock's time is the server's clock, but it never goes back: when the clock is set back, the
-- lock's time stands still for a moment and then goes on at the same distance. So leases and
-- heartbeats that have begun still end, no later than their own length after the step (A2). Stamps
-- and fences are the clock's.

--@ state.lua

--@ holders.lua

--@ queue.lua

-- Takes the first waiter out of the queue, writes it in as the holder, and tells it alone. One that
-- no connection hears for is parked instead.
local function hand_over(lock, waiter)
  if lock.letter == 'l' then
    -- Through an open latch nothing is held, so there is no fence.
    dequeue(lock, waiter)
    tell(lock, waiter, 0, 1, waiter.lease)
    return
  end
  -- A party of a barrier that is cut off is counted all the same: it finds the opening when it asks.
  -- One that asks in this very call learns of it by the answer.
  local must_hear = lock.letter ~= 'b' and lock.asker ~= waiter.entry
  if must_hear and not hears(waiter.client) then
    lock.has_parked = true
    return park(lock, waiter)
  end
  -- Who misses the opening of a barrier must find it when asking again, which takes a heartbeat.
  local lease = lock.letter == 'b' and waiter.lease or math.min(waiter.claim, waiter.lease)
  -- Something is written before the waiter is told: a server may refuse to write.
  dequeue(lock, waiter)
  local fence, fences = next_fence(lock, waiter.fences)
  if tell(lock, waiter, fence, fences, lease) == 0 and must_hear then
    hearing[waiter.client], lock.has_parked = false, true
    remember(lock, waiter)
    return park(lock, waiter)
  end
  local holder = {
    owner = waiter.owner, ends = lock.time + lease * 1000, client = waiter.client, fence = fence,
    entries = waiter.number, permits = waiter.permits, fences = fences, note = waiter.note,
  }
  if waiter.number ~= '0' then
    bring_along(lock, holder, lease)
  end
  save(lock, holder)
end

-- The first waiter that is not parked: nil if there is none, false if another look is needed.
local function head(lock)
  if lock.returned > 0 then
    local ticket = tonumber(redis.call('HGET', lock.key, 'r1') or 0)
    local waiter = waiter_at(lock, ticket)
    if waiter and not waiter.parked then
      return waiter
    end
    lock.work = lock.work - CHANGE
    drop_first_returned(lock)
    return false
  elseif lock.head > lock.ticket then
    if lock.waiting ~= lock.parked then
      -- Somebody else has emptied the queue.
      lock.changed, lock.waiting = true, lock.parked
    end
    return nil
  end
  local waiter = waiter_at(lock, lock.head)
  if waiter and not waiter.parked then
    return waiter
  elseif waiter == false then
    -- It is not what Tenure writes: it cannot be served, and must not be in the way.
    redis.call('HDEL', lock.key, 'q' .. lock.head)
    lock.waiting = lock.waiting - 1
  end
  lock.changed, lock.head = true, lock.head + 1
  return false
end

-- The first that is alive; the dead before it go.
local function live_head(lock)
  for _ = 1, AT_MOST / CHANGE do
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

-- Gives what is free to those who wait, in order (I10). Done as soon as the first of them must wait;
-- for a mutex that only one can get, as soon as one has got it.
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
      or lock.asker == waiter.entry or hears(waiter.client)) then
      return
    elseif waiter then
      -- It does not fit, and may be dead: those behind it, who may fit, do not wait for it.
      park(lock, waiter)
    end
  end
  lock.more = true
end

local function serve_and_reserve(lock, one)
  lock.has_parked = false
  serve(lock, one)
  -- All who wait were found deaf when it was their turn, in this very call: the first of them who asks is
  -- to be the first.
  if lock.has_parked and lock.waiting > 0 and lock.waiting == lock.parked then
    lock.reserved = lock.time + RESERVED
  end
end

-- Brings the lock to the present: ended leases go, and what is free goes to those who wait.
local function settle(lock)
  expire(lock)
  purge_parked(lock)
  if lock.waiting > 0 then
    serve_and_reserve(lock, false)
  end
end

-- The first waiter, if it must let a parked one go first for a moment, is told to ask: it learns for
-- how long.
local function announce(lock)
  local waiter = lock.parked > 0 and lock.parked < lock.waiting and live_head(lock)
  if waiter and is_reserved(lock, waiter.ticket) then
    redis.call('PUBLISH', CHANNEL .. waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
  end
end

-- After a holder has left. A mutex needs no look at the waiter behind the next holder: there is no
-- room for it.
local function pass_on(lock)
  if not lock.single then
    settle(lock)
  elseif lock.waiting > 0 then
    serve_and_reserve(lock, true)
  end
  announce(lock)
end

-- Ends one entry of a holder, or, if it is the only one, gives back all permits but some: how many
-- entries remain, or nil if there was none.
local function leave(lock, owner, number, linger, keep)
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
    -- The next in line, who knows of a later end, is told to ask again.
    -- A latch and a barrier open when somebody comes, not when somebody goes.
    local waiter = holder.ends < was and live_head(lock)
    if waiter and lock.letter ~= 'l' and lock.letter ~= 'b' then
      redis.call('PUBLISH', CHANNEL .. waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
    end
  else
    remove(lock, owner)
    lock.is_own = true
    pass_on(lock)
  end
  return remaining
end

-- Performs an operation on the lock of KEYS[i], from opening to closing, and notes its result: with a
-- plus sign behind it, if there is more to settle than one call may do. Its text, if known, as in
-- `open`.
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
