-- At the end of the loop body of the plain case: `result` is the lock's line of the answer, or false if the lock is
  -- left to the fast path or to lock.lua. A lock that the call names again is, with a text of nil (see on_fast_path).
  if result then
    if count == 1 then
      return first_line .. '\n' .. result
    end
    results[i + 1] = result
  else
    rest = rest or {}
    rest[#rest + 1] = i
    if is_again then
      texts[i] = nil
    end
  end
  if seen then
    seen[key] = true
  end
