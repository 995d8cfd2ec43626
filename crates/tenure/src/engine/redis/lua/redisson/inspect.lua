-- The holders of locks in Redisson's format, as far as they are known, and the record of the last forced release.
-- KEYS[i] the name of the lock
-- ARGV[1] "nonce client fenced"
-- ARGV[2] how many waiters to show (none is known)     ARGV[3] how many holders to show
-- Returns the first argument, and for each lock
-- {kind and limit, number of holders, holders, number of waiters, waiters, record} or an error.
-- A holder is {owner, permits, entries, fence, µs left, field, note}; the kind is "" for a lock that is not held.
local client = string.match(ARGV[1], ' (%S+)')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local results, fenced = { ARGV[1] }, '0'

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua
--@ redisson/holders.lua

local function inspect(key)
  local kind, rows, holding = holders_of(key, tonumber(ARGV[3]), '', MOST_FIELDS)
  local record = redis.pcall('GET', own_key('tenure_forced', key))
  return { kind, holding, rows, 0, {}, type(record) == 'string' and record or '' }
end

for i, key in ipairs(KEYS) do
  local is_done, result = pcall(inspect, key)
  if not is_done then
    local text = type(result) == 'table' and result.err or tostring(result)
    result = { err = (string.gsub(text, '[\r\n]', ' ')) }
  end
  results[i + 1] = result
end
return results
