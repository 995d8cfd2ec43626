-- Before the loop of the plain case: included by acquire, renew and release, which define `first_line`, the first line
-- of the answer. A call for one lock, the most frequent one, needs no tables.
local count, results, seen, rest = #KEYS, nil, nil, nil
local texts = redis.call('MGET', unpack(KEYS))
if count > 1 then
  results, seen = { first_line }, {}
end
