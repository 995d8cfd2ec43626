-- Give back what was granted to entries that are not wanted any more. Waiters are not stored, so there is no more to do.
-- KEYS[i] the name of the lock
-- ARGV[1] "nonce client fenced"
-- and for each lock: owner, number of the entry
-- Returns lines: the first argument, and for each lock "0" or "-error".
local client = string.match(ARGV[1], ' (%S+)')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local results, fenced = { ARGV[1] }, '0'

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua
--@ redisson/ending.lua

for i, key in ipairs(KEYS) do
  local result = checked(function()
    return end_entry(key, ARGV[i * 2], ARGV[i * 2 + 1], 0)
  end)
  results[i + 1] = string.byte(result) == 45 and result or '0'
end
return table.concat(results, '\n')
