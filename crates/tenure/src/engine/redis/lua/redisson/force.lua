-- Take a lock in Redisson's format away from its holders, and keep a record. Tenure's holders are notified at once,
-- Redisson's learn of it when their watchdogs find the lock gone.
-- KEYS[1] the name of the lock
-- ARGV[1] "nonce client fenced"
-- ARGV[2] the owner expected, or ""    ARGV[3] the caller and its reason, for the record
-- ARGV[4] how long the record is kept, ms    ARGV[5] the name, encoded for a message
-- Returns the first argument, the owners that lost it, 1 if others still hold it (more than one call takes away), and 0; no
-- owners, and nothing changed, if it is free or not held by the one expected; or an error.
local client, fenced = string.match(ARGV[1], '^%d+ (%S+) (%d)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua
--@ redisson/holders.lua

local key, expected = KEYS[1], ARGV[2]
-- How many holders one call removes, and how many entries of theirs: it must not block the server.
local MOST_TAKEN, MOST_WORK = 500, 2000

-- Those to remove in this call.
local function portion(kind, rows)
  local taken, owners, work = {}, {}, 0
  for i, row in ipairs(rows) do
    work = work + (kind == 'r' .. ALL and row[2] ~= ALL and entries_of(key, row[6]) or 1)
    if i > 1 and work > MOST_WORK then
      break
    end
    taken[i], owners[i] = row, row[1]
  end
  return taken, owners
end

-- Removes them, and returns what is to be done once all are removed.
local function take_away(kind, taken)
  local permits, is_read = 0, false
  for _, row in ipairs(taken) do
    local owner, field = row[1], row[6]
    if kind == 'm1' then
      free_mutex(key)
    elseif string.byte(kind) == 115 then
      forget_holder(key, owner)
      permits = permits + row[2]
    elseif row[2] == ALL then
      drop_writer(key, field)
    else
      drop_reader(key, field)
      is_read = true
    end
    if kind == 'r' .. ALL then
      redis.call('HDEL', entries_key(key), owner)
    end
  end
  if permits > 0 then
    give_back(key, permits)
  end
  return is_read
end

local function force()
  check_slot(key)
  local kind, rows, holding = holders_of(key, MOST_TAKEN, expected, expected == '' and MOST_ENTRIES or MOST_FIELDS)
  local taken, owners = portion(kind, rows)
  if #taken == 0 then
    return {}, 0
  end
  -- Written before anything is published: a server may refuse to write.
  local record = stamp .. ' ' .. table.concat(owners, ',') .. ' ' .. ARGV[3]
  redis.call('SET', own_key('tenure_forced', key), record, 'PX', ARGV[4])
  -- A client that uses no tokens need not have the right to their keys.
  if kind == 'm1' and redis.pcall('EXISTS', token_key(key)) == 1 then
    redis.call('INCR', token_key(key))
  end
  local is_rest = expected == '' and holding > #taken
  -- The rest of the readers is looked at once, when no other call follows.
  if take_away(kind, taken) and not is_rest then
    settle_readers(key)
  end
  for _, owner in ipairs(owners) do
    redis.call('PUBLISH', 'tenure:redisson:lost', 'lost ' .. owner .. ' ' .. ARGV[5])
  end
  return owners, is_rest and 1 or 0
end

local is_done, result, rest = pcall(force)
if not is_done then
  local text = type(result) == 'table' and result.err or tostring(result)
  return { ARGV[1], { err = (string.gsub(text, '[\r\n]', ' ')) } }
end
return { ARGV[1], result, rest, 0 }
