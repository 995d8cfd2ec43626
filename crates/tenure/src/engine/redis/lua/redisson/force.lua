-- Take a lock in Redisson's format away from its holders, and keep a record. Tenure's holders are notified at once,
-- Redisson's learn of it when their watchdogs find the lock gone.
-- KEYS[1] the name of the lock
-- ARGV[1] "nonce client fenced"
-- ARGV[2] the owner expected, or ""    ARGV[3] the caller and its reason, for the record
-- ARGV[4] how long the record is kept, ms    ARGV[5] the name, encoded for a message
-- Returns the first argument, the owners that lost it, 0 and 0; no owners, and nothing changed, if it is free or not held by
-- the one expected; or an error.
local client, fenced = string.match(ARGV[1], '^%d+ (%S+) (%d)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua
--@ redisson/holders.lua

local key, expected = KEYS[1], ARGV[2]

local function take_away(kind, row)
  local owner, permits, field = row[1], row[2], row[6]
  if kind == 'm1' then
    free_mutex(key)
  elseif string.byte(kind) == 115 then
    forget_holder(key, owner)
    give_back(key, permits)
  elseif permits == ALL then
    drop_writer(key, field)
  else
    drop_reader(key, field)
  end
  redis.call('HDEL', entries_key(key), owner)
end

local function force()
  check_slot(key)
  local kind, rows = holders_of(key, MOST_ENTRIES)
  local taken = {}
  for _, row in ipairs(rows) do
    if expected == '' or expected == row[1] then
      taken[#taken + 1] = row
    end
  end
  if #taken == 0 then
    return {}
  end
  local owners = {}
  for i, row in ipairs(taken) do
    owners[i] = row[1]
  end
  -- Written before anything is published: a server may refuse to write.
  local record = stamp .. ' ' .. table.concat(owners, ',') .. ' ' .. ARGV[3]
  redis.call('SET', prefixed('tenure_forced', key), record, 'PX', ARGV[4])
  if kind == 'm1' and redis.call('EXISTS', token_key(key)) == 1 then
    redis.call('INCR', token_key(key))
  end
  for _, row in ipairs(taken) do
    take_away(kind, row)
    redis.call('PUBLISH', 'tenure:redisson:lost', 'lost ' .. row[1] .. ' ' .. ARGV[5])
  end
  return owners
end

local is_done, result = pcall(force)
if not is_done then
  local text = type(result) == 'table' and result.err or tostring(result)
  return { ARGV[1], { err = (string.gsub(text, '[\r\n]', ' ')) } }
end
return { ARGV[1], result, 0, 0 }
