-- Instead of plain_begin.lua, in a call for locks of several slots that one node of a cluster has. The node would refuse a
-- call that declares keys of two slots, so it declares the first one alone.
-- KEYS[1] the first lock. The keys of the others, and the number of all locks, follow the other arguments.
local KEYS = { KEYS[1] }
local count = tonumber(ARGV[#ARGV])
local texts, results, seen, rest, elsewhere = {}, { first_line }, {}, nil, {}
for i = 1, count do
  KEYS[i] = KEYS[i] or ARGV[#ARGV - count + i - 1]
  local text = redis.pcall('GET', KEYS[i])
  -- A text that is no lock's: the plain case writes nothing over it.
  texts[i] = type(text) == 'table' and '' or text
  -- Another node has the slot now, it is in transit, or the server refuses keys that are not declared.
  elsewhere[i] = type(text) == 'table' and not string.find(text.err, '^WRONGTYPE')
end
