-- A node of a quorum: which proposed fences are refused, and the repair of a hold (core/proposal.rs). Included by
-- acquire, behind the grant.

-- The refusal of a proposal that is too far ahead of the clock; nil if it is not.
local function refuse_ahead(lock)
  return lock.proposal and lock.proposal - now > MAX_AHEAD_OF_CLOCK and '7 ' .. stamp or nil
end

-- The refusal of a proposal that is not above the last fence, or may not be above one whose key has expired: every
-- fence is kept until the clock is MAX_BEHIND_CLOCK ahead of it. A repair may have the last fence again.
local function refuse_outdated(lock)
  local proposal, last = lock.proposal, lock.fence
  if not proposal then
    return nil
  elseif lock.is_repair then
    return proposal < last and '6 ' .. plain(last) or nil
  elseif proposal <= now - MAX_BEHIND_CLOCK then
    last = math.max(last, now)
  end
  return proposal <= last and '6 ' .. plain(last) or nil
end

-- Whether no waiter that can be reached is ahead of a new request: there is none, or all have larger proposals.
local function is_next(lock, owner)
  local ahead = lock.waiting - lock.parked
  return ahead == 0 or lock.proposal and #overtaken(lock, lock.proposal, owner) == ahead
end

-- Grants a repair if the permits are free, before any waiter is served: a majority of the nodes proves that this owner
-- is the holder. If it is not granted, it is treated like any other request.
local function repair(lock, owner, number, kind, permits, lease, note)
  expire(lock)
  local former = lock.kind
  if former ~= kind and (lock.letter ~= 's' or string.sub(kind, 1, 1) ~= 's') then
    return nil
  end
  if is_idle(lock) then
    set_kind(lock, kind)
  end
  if not fits(lock, owner, permits) or refuse_ahead(lock) or refuse_outdated(lock) then
    set_kind(lock, former)
    return nil
  end
  local waiter = waiter_of(lock, owner .. ':' .. number)
  if waiter then
    dequeue(lock, waiter)
  end
  return grant(lock, owner, number, permits, lease, note)
end
