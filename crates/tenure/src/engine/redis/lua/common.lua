-- Constants and functions that both the fast path and the full rules need.

-- The prefix of the channel on which a client receives its wake-ups; its id follows. In a cluster, a tag of the lock's
-- slot is part of the id, "{tag}:id", and so the channel is in that slot.
local CHANNEL = 'tenure:wake:'
-- In µs: a hash's key expires this much later than it must, so that not every call has to set the expiry.
local SLACK = 60 * 1000000
-- The work budget of one call, in reads of single waiters: a few milliseconds at worst. To serve, park or purge a
-- waiter, or to end a lease, costs CHANGE; reading holders, or waiters in chunks, costs less for each. If the budget
-- runs out, a plus sign behind the answer asks the client to continue.
local WORK_LIMIT = 1000
local CHANGE = 4
-- Ending leases and purging waiters leave this much of the budget to serving waiters.
local HALF = WORK_LIMIT / 2
-- How many holders or waiters are read by one command.
local CHUNK = 125
-- With more holders than WORK_LIMIT, ended leases are searched for no more often than every so many µs per holder.
local EXPIRY_PAUSE = 20
-- In ms: after the release of a longer lease, its key is not kept for the rest of the lease.
local LONG_LEASE = 60000
-- In ms: a renewal sets the expiry of the key this much later than it must be.
local RENEWAL_SLACK = 100000
-- How many waiters a new one with a proposal is placed before at most (core/queue.rs).
local MAX_OVERTAKEN = 900
-- In µs: how far a proposal may be ahead of the clock, and behind it (core/proposal.rs).
local MAX_AHEAD_OF_CLOCK = 60 * 1000000
local MAX_BEHIND_CLOCK = 30 * 1000000
-- The number of waiters ahead is counted up to this: beyond it, a waiter acts the same.
local MAX_AHEAD = 8
-- Up to this many holders, the first end of a lease is computed exactly.
local EXACT = 32
-- Fences are below 2^53, with room for those that follow: none is farther ahead of the clock than CENTURY.
local LARGEST_FENCE = 9007199254740991 - 1000000
-- Later than any time.
local NEVER = 9007199254740991
-- In µs. No clock is wrong by a hundred years: a stored time that is was not written by Tenure. If it were
-- believed, it would end every lease.
local CENTURY = 100 * 365 * 86400 * 1000000
-- In µs: a lock that is free while all its waiters are parked is reserved for them for this long: a client whose
-- subscription was interrupted reconnects and polls within this time, and is served in order.
local RESERVED = 100 * 1000

-- An error as a line of an answer: an error of one lock does not affect the others of its call.
local function failure(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  return '-' .. string.gsub(text, '[\r\n]', ' ')
end

-- Whether a client receives its wake-ups through a cluster: its id begins with a brace.
local function is_sharded(client)
  return string.byte(client) == 123
end

-- Sends a wake-up to one client; returns the number of receivers at this server.
local function publish(client, message)
  return redis.call(is_sharded(client) and 'SPUBLISH' or 'PUBLISH', CHANNEL .. client, message)
end

-- Sends a message to one client, through all nodes of a cluster, wherever it is connected.
local function publish_to_all(client, message)
  redis.call('PUBLISH', CHANNEL .. string.match(client, '[^:]*$'), message)
end

-- How many connections are subscribed to a client's channel at this server; nil if this user may not know it.
-- NUMSUB, because the count that PUBLISH returns includes subscribers to patterns.
local function receivers(client)
  local found = redis.pcall('PUBSUB', is_sharded(client) and 'SHARDNUMSUB' or 'NUMSUB', CHANNEL .. client)
  return not found.err and found[2] or nil
end

-- The parts of the text of a held mutex: fence, start of its lease, length of its lease, owner, client, and the number
-- of further fences with a note, if there is either.
local function held_parts(text)
  local fence, lease, owner, client, more = string.match(text, '^(%d+)[ -](%d+) (%x+) (%S+) ?(.*)$')
  if fence then
    return fence, fence, lease, owner, client, more
  end
  return string.match(text, '^(%d+)[+*](%d+) (%d+) (%x+) (%S+) ?(.*)$')
end

-- The text of a held mutex, and for how many ms its key is kept: `retention` includes how far the fence is ahead
-- of the clock. `at_least` is an expiry that another client has set, which sets it again when it releases.
local function held_text(fence, since, lease, owner, client, more, retention, at_least)
  local times = string.format('%s %08d', since == fence and '' or '+' .. since, lease)
  if since == fence and (at_least or lease > LONG_LEASE) then
    times = '-' .. string.sub(times, 2)
  end
  local text = fence .. times .. ' ' .. owner .. ' ' .. client .. (more and ' ' .. more or '')
  return text, math.max(lease + retention + (since == fence and 0 or RENEWAL_SLACK), at_least or 0)
end

-- Replaces a lock's string by the hash that was built beside it; returns an error if the server refuses that. The hash
-- is deleted then: it has no expiry, and would become part of the next one.
local function replace_by_hash(key)
  local renamed = redis.pcall('RENAME', key .. ':new', key)
  if renamed.err then
    redis.pcall('DEL', key .. ':new')
  end
  return renamed.err and renamed or nil
end
