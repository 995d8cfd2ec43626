-- On a node of a quorum: reads the locks, and in the same command the marker of the quorum. Refuses all of the operation, with
-- nothing changed, unless the server has it. A server that lost its data has lost the marker with it, and must not
-- vote (I1, I4).
-- ARGV[#ARGV] marker
KEYS[count + 1] = 'tenure:quorum'
local texts = redis.pcall('MGET', unpack(KEYS))
KEYS[count + 1] = nil
if texts[count + 1] ~= ARGV[#ARGV] then
  return texts.err and texts or { err = 'QUARANTINED this server does not have the marker of its '
    .. 'quorum: it is new, or has lost its data. Clients admit it again after the quarantine' }
end
