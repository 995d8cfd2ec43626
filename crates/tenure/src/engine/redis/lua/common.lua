-- What the straight way and the rules have in common.

-- The channel on which a client hears of its grants, with its id behind it.
local CHANNEL = 'tenure:wake:'
-- A hash is told to live for so much longer than it must, so that it need not be told each time.
local SLACK = 60 * 1000000
-- The work of one call: so many looks at waiters, one by one. To serve, park or purge one, or to end a lease, costs
-- CHANGE; of holders, and of waiters that are read many at once, a look costs less. That makes a few milliseconds at
-- worst. A plus sign behind an answer asks its client to go on.
local AT_MOST = 1000
local CHANGE = 4
-- What ends leases and forgets waiters leaves so much of it to those who are to be served.
local HALF = AT_MOST / 2
-- So many holders, or waiters, are read at once.
local SOME = 125
-- Of more holders than AT_MOST, the ended leases are looked for no more often than this many µs for each of them.
local PAUSE = 20
-- A lease above this, in ms, is too long for its key to be kept for it after a release.
local A_MINUTE = 60000
-- A renewal tells the key of a lock to live for so many ms longer than it must.
local LONGER = 100000
-- Farther behind than this, it makes no difference to a waiter.
local AHEAD = 8
-- Of so many holders the first end is told exactly.
local FEW = 32
-- Fences are below 2^53, with room for those that follow: none is farther ahead of the clock than CENTURY.
local LARGEST_FENCE = 9007199254740991 - 1000000
-- Later than any time.
local NEVER = 9007199254740991
-- No clock is wrong by a hundred years, in µs. What is stored and says so was not written by Tenure; taken
-- for true, it would end every lease.
local CENTURY = 100 * 365 * 86400 * 1000000
-- A lock that is free while all its waiters are parked is reserved for so long, in µs: a client
-- whose wake-ups were interrupted connects again and asks within this time, and is served in order.
local RESERVED = 100 * 1000

-- What went wrong, as a line of an answer. A lock's own trouble is not that of others in its call.
local function failure(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  return '-' .. string.gsub(text, '[\r\n]', ' ')
end

-- The parts of the text of a held mutex: fence, since when its lease runs, how long that is, owner, client, and
-- the number of its further fences and a note, if there are any.
local function held_parts(text)
  local fence, lease, owner, client, more = string.match(text, '^(%d+)[ -](%d+) (%x+) (%S+) ?(.*)$')
  if fence then
    return fence, fence, lease, owner, client, more
  end
  return string.match(text, '^(%d+)%+(%d+) (%d+) (%x+) (%S+) ?(.*)$')
end

-- The text of a held mutex, and for how many ms its key is kept: with a retention and how far its fence is ahead
-- of the clock; and at least for so many as another client has told it, which then tells it again when it releases.
local function held_text(fence, since, lease, owner, client, more, retention, at_least)
  local times = string.format('%s %08d', since == fence and '' or '+' .. since, lease)
  if since == fence and (at_least or lease > A_MINUTE) then
    times = '-' .. string.sub(times, 2)
  end
  local text = fence .. times .. ' ' .. owner .. ' ' .. client .. (more and ' ' .. more or '')
  return text, math.max(lease + retention + (since == fence and 0 or LONGER), at_least or 0)
end

-- Puts the hash that was made beside a lock's string in its place: an error if that is refused. Then nothing
-- stays of it, for it has no expiry, and would be part of the next one that is made.
local function put_in_place(key)
  local renamed = redis.pcall('RENAME', key .. ':new', key)
  if renamed.err then
    redis.pcall('DEL', key .. ':new')
  end
  return renamed.err and renamed or nil
end
